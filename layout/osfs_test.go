package layout_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout"
)

// diskFile writes n random bytes to a file of its own.
func diskFile(t testing.TB, n int) (string, []byte) {
	t.Helper()
	data := make([]byte, n)
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	path := filepath.Join(t.TempDir(), "file.bin")
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	return path, data
}

// openDirect opens a file for direct reads, and skips the test where this
// folder's disk does not allow them.
func openDirect(t testing.TB, fsys layout.FS, path string) layout.File {
	t.Helper()
	f, err := fsys.Open(path, layout.Direct)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if f.Direct() == (layout.Alignment{}) {
		t.Skipf("no direct reads below %s: %s", filepath.Dir(path), layout.FallbackReason(f))
	}
	return f
}

// The rest of what reads must keep is in TestEnginesConform.
func TestRefusalsNameTheFile(t *testing.T) { eachEngine(t, testRefusalsNameTheFile) }

func testRefusalsNameTheFile(t *testing.T, fsys layout.FS) {
	path, _ := diskFile(t, 100_000)
	f := openDirect(t, fsys, path)
	block := f.Direct().Offset
	for name, err := range map[string]error{
		"unaligned":        second(f.ReadAt(slot(int64(block))[:block-1], 0)),
		"before the start": second(f.ReadAt(slot(int64(block)), -int64(block))),
		"too many buffers": second(layout.ReadV(f, make([][]byte, layout.MaxVector+1), 0)),
	} {
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want an error that names the file", name, err)
		}
	}
}

func second(_ int, err error) error { return err }

func TestEmptyFileFallsBack(t *testing.T) { eachEngine(t, testEmptyFileFallsBack) }

func testEmptyFileFallsBack(t *testing.T, fsys layout.FS) {
	path, _ := diskFile(t, 0)
	f, err := fsys.Open(path, layout.Direct)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Direct() != (layout.Alignment{}) || layout.FallbackReason(f) == "" {
		t.Errorf("got alignment %v and reason %q, want buffered with a reason", f.Direct(), layout.FallbackReason(f))
	}
	if n, err := f.ReadAt(make([]byte, 10), 0); n != 0 || err != io.EOF {
		t.Errorf("got %d bytes and %v, want io.EOF", n, err)
	}
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	for _, mode := range []layout.Mode{layout.Buffered, layout.Direct} {
		if _, err := layout.OS().Open(t.TempDir(), mode); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("folder: got %v, want a refusal", err)
		}
		if _, err := layout.OS().Open(filepath.Join(t.TempDir(), "none"), mode); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("missing: got %v, want fs.ErrNotExist", err)
		}
	}
}

func TestOSWriteSide(t *testing.T) {
	fsys, dir := layout.OS(), t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	f, err := fsys.Create(a)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("hello"), 3); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 8)
	if _, err := f.ReadAt(got, 0); err != nil || string(got) != "\x00\x00\x00hello" {
		t.Errorf("got %q and %v", got, err)
	}
	if err := errors.Join(f.Sync(), f.Close(), fsys.SyncDir(dir)); err != nil {
		t.Error(err)
	}
	if _, err := fsys.Create(a); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create again: got %v, want fs.ErrExist", err)
	}
	if err := fsys.Mkdir(b); err != nil {
		t.Error(err)
	}
	if err := fsys.Rename(a, b); !errors.Is(err, fs.ErrExist) {
		t.Errorf("rename onto a folder: got %v, want fs.ErrExist", err)
	}
	if err := fsys.Rename(b, filepath.Join(dir, "c")); err != nil {
		t.Error(err)
	}
	if err := fsys.Rename(a, b); err != nil {
		t.Error(err)
	}
	if err := fsys.Rename(a, b); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("rename of nothing: got %v, want fs.ErrNotExist", err)
	}
	if free, err := fsys.Free(dir); err != nil || free <= 0 {
		t.Errorf("free: got %d and %v", free, err)
	}
	if err := errors.Join(fsys.RemoveAll(b), fsys.RemoveAll(b)); err != nil {
		t.Error(err)
	}
}

// TestStoreOnDisk builds, verifies and reads a store on the real disk.
func TestStoreOnDisk(t *testing.T) {
	mem := memfs.New(memfs.Options{})
	cp := source(t, mem, largeModel)
	dir := t.TempDir()
	onDisk := cp
	onDisk.Files = nil
	for i, data := range sourceFiles(t, mem, cp) {
		f := cp.Files[i]
		f.Path = filepath.Join(dir, filepath.Base(f.Path))
		if err := os.WriteFile(f.Path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		onDisk.Files = append(onDisk.Files, f)
	}
	lanes := []layout.LaneSpec{{}, {Path: filepath.Join(t.TempDir(), "lane.bin")}}
	target := filepath.Join(dir, "m.outrider")
	build(t, layout.OS(), target, onDisk, layout.PlanOptions{Lanes: lanes})
	report, err := layout.Verify(context.Background(), layout.VerifyOptions{Dir: target, Source: &onDisk})
	if err != nil || !report.OK() {
		t.Fatalf("Verify: got %+v and %v", report, err)
	}
	s := open(t, layout.OS(), target, layout.Direct)
	sameExperts(t, mem, cp, s)
	inPlace, err := layout.OpenInPlace(layout.OS(), onDisk, layout.Direct)
	if err != nil {
		t.Fatal(err)
	}
	defer inPlace.Close()
	sameExperts(t, mem, cp, inPlace)
	if runtime.GOOS == "linux" {
		t.Logf("direct: store %v %s, in place %v", s.Lanes()[0].File.Direct(), layout.FallbackReason(s.Lanes()[0].File), inPlace.Lanes()[0].File.Direct())
	}
	if _, err := layout.Build(context.Background(), layout.BuildOptions{Dir: target, Plan: plan(t, onDisk, layout.PlanOptions{}), Checkpoint: &onDisk}); !errors.Is(err, layout.ErrExists) {
		t.Errorf("second build: got %v, want ErrExists", err)
	}
	entries, err := os.ReadDir(target)
	if err != nil || len(entries) != 3 {
		t.Errorf("store's folder: got %v and %v, want three files", entries, err)
	}
}
