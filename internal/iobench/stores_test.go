package iobench

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"outrider/layout"
)

var tiny = []Batch{{4, 64 << 10}, {2, 16 << 10}}

func tinyStores(t *testing.T, o StoresOptions) *Stores {
	t.Helper()
	o.Batches, o.Bytes, o.Dir = tiny, 8<<20, t.TempDir()
	s, err := Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func empty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left in the folder: %v (%v), want nothing", left, err)
	}
}

func TestMakeStores(t *testing.T) {
	s := tinyStores(t, StoresOptions{})
	var mu sync.Mutex
	var done, total int64
	targets, err := s.Make(t.Context(), func(d, n int64) {
		mu.Lock()
		defer mu.Unlock()
		done, total = max(done, d), n
	})
	if err != nil {
		t.Fatal(err)
	}
	if done != total || total != 2*s.Bytes() || s.Bytes() > 8<<20 || s.Bytes() < 7<<20 {
		t.Errorf("progress ended at %d of %d, for %d bytes: want all of twice what the stores take, of 8 MiB", done, total, s.Bytes())
	}
	onDrive := int64(0)
	for i, target := range targets {
		if target.Batch != tiny[i] || target.Shape.TopK != tiny[i].Experts || len(target.Files) != 1 {
			t.Errorf("got %+v, want one lane with batches of %v", target, tiny[i])
		}
		info, err := os.Stat(target.Files[0])
		if err != nil {
			t.Fatal(err)
		}
		onDrive += info.Size()
		src, err := target.Open(layout.OS())
		if err != nil {
			t.Fatal(err)
		}
		if got := slotBytes(src); got != tiny[i].RecordBytes {
			t.Errorf("%v: got slots of %d bytes", tiny[i], got)
		}
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	}
	if onDrive != s.Bytes() {
		t.Errorf("got %d bytes on the drive, want the %d that were planned", onDrive, s.Bytes())
	}
	if err := errors.Join(s.Remove(), s.Remove()); err != nil {
		t.Error(err)
	}
	empty(t, s.Dir())
}

// ended is a file system whose files end at some bytes, as on a drive that runs full.
type ended struct {
	layout.WriteFS
	left atomic.Int64
}

type endedFile struct {
	layout.WriteFile
	fs *ended
}

var errFull = errors.New("drive is full")

func (e *ended) Create(name string) (layout.WriteFile, error) {
	f, err := e.WriteFS.Create(name)
	return endedFile{f, e}, err
}

func (f endedFile) WriteAt(p []byte, off int64) (int, error) {
	if f.fs.left.Add(-int64(len(p))) < 0 {
		return 0, errFull
	}
	return f.WriteFile.WriteAt(p, off)
}

func TestFailedMakeLeavesNothing(t *testing.T) {
	for _, left := range []int64{0, 3 << 20, 6 << 20} { // in the first store, and in the second
		drive := &ended{WriteFS: layout.OS()}
		drive.left.Store(left)
		s := tinyStores(t, StoresOptions{FS: drive})
		if _, err := s.Make(t.Context(), nil); !errors.Is(err, errFull) {
			t.Errorf("after %d bytes: got %v, want %v", left, err, errFull)
		}
		empty(t, s.Dir())
	}
}

func TestInterruptedMakeLeavesNothing(t *testing.T) {
	s := tinyStores(t, StoresOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Make(ctx, func(done, total int64) {
		if done > total*3/4 { // in the second store
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", err)
	}
	empty(t, s.Dir())
}

// narrow is a file system with little space left.
type narrow struct{ layout.WriteFS }

func (narrow) Free(string) (int64, error) { return 1 << 20, nil }

func TestPlanRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		o    StoresOptions
		want error
		word string
	}{
		"small":  {StoresOptions{Bytes: 100 << 20, Dir: dir}, ErrTooSmall, "want at least 805306368"},
		"space":  {StoresOptions{Bytes: 8 << 20, Batches: tiny, Dir: dir, FS: narrow{layout.OS()}}, layout.ErrNoSpace, "--size"},
		"folder": {StoresOptions{Bytes: 8 << 20, Batches: tiny, Dir: filepath.Join(dir, "missing")}, fs.ErrNotExist, "--dir"},
	} {
		if _, err := Plan(c.o); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: got %v, want %v that says %q", name, err, c.want, c.word)
		}
	}
	empty(t, dir)
}

// A folder that nothing may be written into is found out at once.
func TestFolderThatMayNotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	s := tinyStores(t, StoresOptions{})
	s.opt.Dir = file // as root, who may write anywhere, no folder refuses
	if _, err := s.Make(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("got %v, want an error that names --dir", err)
	}
}

func TestInMemory(t *testing.T) {
	if got := inMemory(filepath.Join(t.TempDir(), "x")); got != "" && got != "tmpfs" {
		t.Errorf("got %q", got)
	}
	if _, err := os.Stat("/dev/shm"); err == nil && inMemory("/dev/shm/x") == "" {
		t.Error("/dev/shm: got that it is a drive")
	}
}
