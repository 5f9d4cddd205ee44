package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider/internal/amount"
	"outrider/internal/device"
	"outrider/internal/memfs"
	"outrider/layout"
	"outrider/layout/drive"
)

// probed is a profile whose figures do not depend on a drive.
func probed() *drive.Profile {
	p := &drive.Profile{
		Format: "outrider drive profile", Version: 1, Path: "/mnt/fast", Kind: drive.KindFolder, FileBytes: 1 << 30, Seconds: 12.04,
		Direct: true, Engine: layout.EnginePread, BlockBytes: 1 << 20, Depth: 4, BytesPerSecond: 3.1e9, LatencySeconds: 8.14e-5,
		Device: drive.Device{
			FileSystem: "xfs", Number: "259:0", Name: "nvme0n1", Model: "Fast Drive 1TB", Scheduler: "none", LogicalBlockBytes: 512,
			MaxRequestBytes: 1 << 20, Link: "PCIe 16.0 GT/s x4", LinkBytesPerSecond: 7.877e9,
		},
	}
	for i, size := range []int64{53248, 64 << 10, 1 << 20} {
		for j, depth := range []int{1, 2, 4, 8}[:4-i%2] {
			rate := 1e9 * float64(i+1) * float64(min(j, 2)+1) / 3
			if size == 1<<20 && depth == 4 {
				rate = 3.1e9
			}
			p.Cells = append(p.Cells, drive.Cell{
				BlockBytes: size, Depth: depth, BytesPerSecond: rate, P50Micros: 81.4 * float64(i+j+1), P99Micros: 200.6 * float64(i+j+1),
				CPUSecondsPerGiB: 0.5 / float64(i+1), Rounds: 4, Spread: 1.2,
			})
		}
	}
	return p
}

func TestProbeTextGolden(t *testing.T) {
	var out bytes.Buffer
	probeText{probed(), "fast.json"}.writeTo(&out)

	memory := probed()
	memory.Kind, memory.Path, memory.Device = drive.KindFile, "/dev/shm/model.gguf", drive.Device{FileSystem: "tmpfs"}
	memory.Direct, memory.Engine, memory.Fallback = false, layout.EngineBuffered, "the file system refuses direct reads (invalid argument)"
	memory.Warning, memory.Notes = "memory was measured, not a drive: tmpfs keeps its files in memory", []string{"a first note", "a second note"}
	out.WriteString("\n\n")
	probeText{memory, ""}.writeTo(&out)

	lane, slow := *probed(), *probed()
	lane.Kind, lane.Path, slow.Kind, slow.Path = drive.KindLane, "/mnt/fast/lane-0.bin", drive.KindLane, "/mnt/disk/lane-1.bin"
	slow.BytesPerSecond, slow.BlockBytes, slow.Depth, slow.LatencySeconds = 2e8, 4<<20, 1, 0.0081
	slow.Device = drive.Device{FileSystem: "ext4", Name: "sda", Rotational: true}
	store := &drive.Profile{
		Kind: drive.KindStore, Path: "model.outrider", FileBytes: 2 << 30, Seconds: 13, Direct: true, Engine: layout.EnginePread, BlockBytes: 4 << 20, Depth: 4,
		BytesPerSecond: 3.3e9, LatencySeconds: 0.0081, Lanes: []drive.Profile{lane, slow},
	}
	out.WriteString("\n\n")
	probeText{store, ""}.writeTo(&out)
	golden(t, "probe", out.String())
}

func TestProbeHelpGolden(t *testing.T) {
	help := succeed(t, "probe", "--help")
	golden(t, "help-probe", help)
	for _, want := range []string{"--json", "Exit status:", "130  interrupted"} {
		if !strings.Contains(help, want) {
			t.Errorf("got no %q in the help, want it", want)
		}
	}
}

// onDrive runs the command over a folder in memory on a modelled drive.
func onDrive(t *testing.T, c probeCmd, a *app) error {
	t.Helper()
	mem := memfs.New(memfs.Options{Align: layout.Alignment{Memory: 512, Offset: 4096}})
	if err := mem.MkdirAll("/mnt/fast"); err != nil {
		t.Fatal(err)
	}
	c.Path, c.Seconds, c.Space = "/mnt/fast", 4, amount.Amount{Bytes: 16 << 20}
	o, err := c.options()
	if err != nil {
		t.Fatal(err)
	}
	slow := device.New(device.Model{Latency: 5 * time.Millisecond, BytesPerSecond: 20e6})
	o.FS, o.Reads = mem, &device.FS{Base: mem, Place: func(string) *device.Drive { return slow }}
	err = c.probe(t.Context(), a, o)
	if names := mem.Names(); len(names) != 2 { // the folders
		t.Errorf("got %v after the probe, want no file left", names)
	}
	return err
}

func TestProbePrintsAndSavesOneProfile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fast.json")
	synctest.Test(t, func(t *testing.T) {
		var out, progress bytes.Buffer
		if err := onDrive(t, probeCmd{Save: path, Size: amount.Amount{Bytes: 100_000}}, &app{stdout: &out, stderr: &progress, json: true, now: time.Now}); err != nil {
			t.Fatal(err)
		}
		var printed drive.Profile
		if err := json.Unmarshal(out.Bytes(), &printed); err != nil {
			t.Fatalf("got %q, want one JSON object: %v", out.String(), err)
		}
		saved, err := drive.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(printed, *saved); diff != "" {
			t.Errorf("printed -, saved +:\n%s", diff)
		}
		if _, ok := saved.Cell(102_400, 1); !ok || saved.BlockBytes != 64<<10 || saved.Depth != 4 || saved.FileBytes != 16<<20 {
			t.Errorf("got %+v, want a row for --size, and 64 KiB at depth 4", saved)
		}
		if progress.Len() > 0 {
			t.Errorf("got %q on stderr, want nothing with --json", progress.String())
		}
		if err := onDrive(t, probeCmd{}, &app{stdout: &out, stderr: &progress, now: time.Now}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), " --depth 4 --block 64KiB\n") || !strings.Contains(progress.String(), "probing: ") {
			t.Errorf("got %q and %q, want the flags to give, and progress", out.String(), progress.String())
		}
	})
}

func TestProbeInterruptedLeavesNothing(t *testing.T) {
	folder := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(200*time.Millisecond, cancel)
	var stderr strings.Builder
	status := run(ctx, []string{"probe", folder, "--space", "64MiB", "--seconds", "600"}, io.Discard, &stderr)
	if status != exitInterrupted || stderr.String() != "outrider: interrupted\n" {
		t.Errorf("got status %d and %q, want 130 and a word", status, stderr.String())
	}
	wantEmpty(t, folder)
}

func TestProbeErrors(t *testing.T) {
	folder := t.TempDir()
	missing, small := filepath.Join(folder, "missing"), filepath.Join(folder, "small")
	if err := os.WriteFile(small, make([]byte, 5000), 0o666); err != nil {
		t.Fatal(err)
	}
	unchanged(t, func() {
		for _, tt := range []struct {
			args   []string
			status int
			word   string
		}{
			{[]string{missing}, exitInput, "no such file"},
			{[]string{small}, exitInput, "it has 5000 bytes, want at least 65536: name a larger file"},
			{[]string{folder, "--save", filepath.Join(missing, "p")}, exitInput, "save the profile"},
			{[]string{}, exitUsage, "<path>"},
			{[]string{folder, "--seconds", "0"}, exitUsage, "--seconds is 0"},
			{[]string{folder, "--seconds", "NaN"}, exitUsage, "--seconds is NaN"},
			{[]string{folder, "--seconds", "0.5"}, exitUsage, "a duration of 500ms, want 1s to 10m0s"},
			{[]string{folder, "--space", "1MiB"}, exitUsage, "a temporary file of 1048576 bytes"},
			{[]string{folder, "--space", "10%"}, exitUsage, "not shares"},
			{[]string{folder, "--size", "1GiB"}, exitUsage, "records of 1073741824 bytes"},
			{[]string{folder, "--engine", "steam"}, exitUsage, "--engine"},
		} {
			got := invoke(t, append([]string{"probe"}, tt.args...)...)
			if got.status != tt.status || !strings.Contains(got.stderr, tt.word) || strings.Count(got.stderr, "\n") != 1 || got.stdout != "" {
				t.Errorf("probe %v: got status %d, %q, want %d and one line that says %q", tt.args, got.status, got.stderr, tt.status, tt.word)
			}
		}
	}, folder)
}

func TestBlockText(t *testing.T) {
	for n, want := range map[int64]string{1 << 20: "1MiB", 4 << 20: "4MiB", 64 << 10: "64KiB", 53248: "52KiB", 1536 << 10: "1536KiB"} {
		got := blockText(n)
		var back amount.Amount
		if err := back.UnmarshalText([]byte(got)); err != nil || got != want || back.Bytes != n {
			t.Errorf("%d: got %q, %v, want %q, which is read as the same", n, got, err, want)
		}
	}
}
