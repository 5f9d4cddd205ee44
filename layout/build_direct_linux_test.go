package layout_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"outrider/internal/pagecache"
	"outrider/layout"
)

// TestDirectBuild: on a file system with direct writes a build is the same, byte by
// byte, leaves nothing of its lanes in the page cache, and a damaged part is mended.
func TestDirectBuild(t *testing.T) {
	dir := t.TempDir()
	cp := diskModel(t, dir, largeModel)
	p := plan(t, cp, layout.PlanOptions{
		Align:  4096,
		Lanes:  []layout.LaneSpec{{}, {Path: filepath.Join(dir, "l1.bin")}},
		Copies: layout.CopiesOptions{Bytes: 4 << 20},
	})
	opts := layout.BuildOptions{Dir: filepath.Join(dir, "m"), Plan: p, Checkpoint: &cp}
	report, err := layout.Build(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if !report.Direct {
		t.Skip("direct writes do not work in the folder for temporary files")
	}
	for _, lane := range []string{"m/lane-0.bin", "l1.bin"} {
		pages, err := cachedPages(filepath.Join(dir, lane))
		if errors.Is(err, errors.ErrUnsupported) {
			break
		}
		if err != nil || pages > 0 {
			t.Errorf("%s: got %d pages in the page cache and %v, want none", lane, pages, err)
		}
	}
	verified, err := layout.Verify(context.Background(), layout.VerifyOptions{Dir: opts.Dir, Source: &cp})
	if err != nil || !verified.OK() {
		t.Errorf("got %+v and %v, want no finding", verified, err)
	}
	want := diskFiles(t, dir)
	unfinish(t, dir, &opts)
	opts.Resume = true
	resumed, err := layout.Build(context.Background(), opts)
	if err != nil || resumed.ReusedRecords == 0 || resumed.ReusedRecords >= resumed.Records || !resumed.Direct {
		t.Fatalf("got %+v and %v, want some records kept", resumed, err)
	}
	for name, data := range diskFiles(t, dir) {
		if !bytes.Equal(want[name], data) {
			t.Errorf("%s: got other bytes from the resumed build", name)
		}
	}
}

// unfinish removes the store and leaves a part of its build, one lane of it damaged.
func unfinish(t *testing.T, dir string, opts *layout.BuildOptions) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(opts.Dir), os.Remove(filepath.Join(dir, "l1.bin")), os.Remove(filepath.Join(dir, "l1.bin.copies"))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	interrupted := *opts
	interrupted.Resume, interrupted.Parallel = true, 1
	interrupted.Progress = func(done, total int64) {
		if done > total*2/3 {
			cancel()
		}
	}
	if _, err := layout.Build(ctx, interrupted); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want context.Canceled", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "m.building", "lane-0.bin"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("damage"), 1000)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// diskFiles is all files below a folder, by path.
func diskFiles(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			out[path], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func cachedPages(path string) (int64, error) {
	pages, _, err := pagecache.Cached(path)
	return pages, err
}
