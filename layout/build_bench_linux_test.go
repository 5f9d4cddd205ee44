package layout_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"outrider/internal/pagecache"
	"outrider/layout"
)

// BenchmarkBuildOnDisk builds a store of 1.5 GB of experts, and copies the same bytes
// with cp and fsync, in turn, with a source that is in the page cache and one that
// is not. It needs 4.5 GB in the folder for temporary files. cp/build is how fast the
// build is beside cp, the median of all rounds; peak-MB is the process's resident
// memory. Each build reads back every byte that it has written.
func BenchmarkBuildOnDisk(b *testing.B) {
	if testing.Short() {
		b.Skip("writes several GB")
	}
	for _, records := range []struct {
		name  string
		count int
		sizes []int64
	}{
		{"records=6MB", 32, []int64{2 << 20, 2 << 20, 1<<20 + 700<<10}},
		{"records=150kB", 1280, []int64{51 << 10, 51 << 10, 47 << 10}}, // through the page cache: aligned to less than a page
	} {
		b.Run(records.name, func(b *testing.B) {
			dir := b.TempDir()
			buildBesideCopy(b, dir, bigModel(b, dir, records.count, records.sizes...))
		})
	}
}

func buildBesideCopy(b *testing.B, dir string, cp layout.Checkpoint) {
	p := plan(b, cp, layout.PlanOptions{})
	for _, cold := range []bool{false, true} {
		b.Run(map[bool]string{false: "source=cached", true: "source=on-disk"}[cold], func(b *testing.B) {
			var ratios, copies, builds []float64
			peak, direct := 0.0, false
			for b.Loop() {
				var report *layout.BuildReport
				copying := timed(b, cp.Files[0].Path, cold, func() error { return copyFile(cp.Files[0].Path, filepath.Join(dir, "copy")) })
				remove(b, filepath.Join(dir, "copy"))
				resetPeak()
				building := timed(b, cp.Files[0].Path, cold, func() (err error) {
					report, err = layout.Build(context.Background(), layout.BuildOptions{Dir: filepath.Join(dir, "m"), Plan: p, Checkpoint: &cp})
					return err
				})
				peak = max(peak, peakMB())
				direct = report.Direct
				remove(b, filepath.Join(dir, "m"))
				ratios = append(ratios, copying/building)
				copies, builds = append(copies, copying), append(builds, building)
			}
			b.ReportMetric(median(ratios), "cp/build")
			b.ReportMetric(float64(p.DataBytes)/1e6/median(copies), "cp-MB/s")
			b.ReportMetric(float64(p.DataBytes)/1e6/median(builds), "build-MB/s")
			b.ReportMetric(peak, "peak-MB")
			b.Logf("written around the page cache: %v", direct)
		})
	}
}

// bigModel is 8 layers of so many experts, random bytes.
func bigModel(b *testing.B, dir string, experts int, sizes ...int64) layout.Checkpoint {
	b.Helper()
	cp := uniform(8, experts, sizes...)
	cp.Files[0].Path = filepath.Join(dir, "model.bin")
	f, err := os.Create(cp.Files[0].Path)
	if err != nil {
		b.Fatal(err)
	}
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{6}), cp.Files[0].Size)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		b.Fatal(err)
	}
	return cp
}

func timed(b *testing.B, source string, cold bool, do func() error) float64 {
	b.Helper()
	if cold {
		if err := pagecache.Drop(source); err != nil {
			b.Fatal(err)
		}
	}
	start := time.Now()
	if err := do(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start).Seconds()
}

func copyFile(from, to string) error {
	if err := exec.Command("cp", from, to).Run(); err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func remove(b *testing.B, path string) {
	b.Helper()
	b.StopTimer()
	if err := os.RemoveAll(path); err != nil {
		b.Fatal(err)
	}
	b.StartTimer()
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}

// resetPeak lets the kernel count the peak of resident memory anew.
func resetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

func peakMB() float64 {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(data), "VmHWM:")
	kib, _ := strconv.ParseFloat(strings.Fields(after + " 0")[0], 64)
	return kib * 1024 / 1e6
}
