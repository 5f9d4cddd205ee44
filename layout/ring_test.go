package layout_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout"
)

// openRing skips the test where the kernel refuses a ring.
func openRing(t testing.TB, depth int) *layout.Ring {
	t.Helper()
	r, err := layout.OpenRing(layout.RingOptions{Depth: depth})
	if errors.Is(err, layout.ErrNoRing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.Close(), r.Close()); err != nil {
			t.Errorf("Close twice: got %v, want nil", err)
		}
	})
	return r
}

// eachEngine runs a test with every engine for direct reads.
func eachEngine(t *testing.T, test func(t *testing.T, fsys layout.FS)) {
	t.Helper()
	t.Run("pread", func(t *testing.T) { test(t, layout.OS()) })
	t.Run("ring", func(t *testing.T) { test(t, openRing(t, 0)) })
}

// openRinged opens a file that is read through the ring, or skips.
func openRinged(t testing.TB, r *layout.Ring, path string) layout.File {
	t.Helper()
	f := openDirect(t, r, path)
	if layout.Engine(f) != layout.EngineRing {
		t.Skipf("the ring does not read below %s: %s", filepath.Dir(path), r.Reason())
	}
	return f
}

// TestRingCloseDuringReads: reads under way end rightly, later ones with fs.ErrClosed.
func TestRingCloseDuringReads(t *testing.T) {
	path, want := diskFile(t, 1<<20)
	for range 10 {
		r := openRing(t, 4)
		f := openRinged(t, r, path)
		var wg sync.WaitGroup
		started := make(chan struct{}, 4)
		for range cap(started) {
			wg.Go(func() {
				reader := layout.NewReader(f)
				defer reader.Close()
				bufs := [][]byte{slot(64 << 10)}
				for i := 0; ; i++ {
					reader.Start(f, i, bufs, 64<<10)
					tag, n, err := reader.Wait()
					if i == 0 {
						started <- struct{}{}
					}
					if tag == i && err == nil && bytes.Equal(bufs[0], want[64<<10:128<<10]) {
						continue
					}
					if n != 0 || !errors.Is(err, fs.ErrClosed) || !strings.Contains(err.Error(), path) {
						t.Errorf("got tag %d, %d bytes and %v, want the right ones or fs.ErrClosed that names the file", tag, n, err)
					}
					return
				}
			})
		}
		<-started
		if err := r.Close(); err != nil {
			t.Errorf("Close: got %v", err)
		}
		wg.Wait()
	}
}

// TestRingAfterClose: what needs no ring goes on.
func TestRingAfterClose(t *testing.T) {
	path, want := diskFile(t, 8192)
	r := openRing(t, 0)
	f := openRinged(t, r, path)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	buf := slot(4096)
	if n, err := f.ReadAt(buf, 0); n != 4096 || err != nil || !bytes.Equal(buf, want[:n]) {
		t.Errorf("ReadAt: got %d bytes and %v, want all by pread", n, err)
	}
	reader := layout.NewReader(f)
	defer reader.Close()
	reader.Start(f, 1, [][]byte{slot(4096)}, 0)
	if _, n, err := reader.Wait(); n != 0 || !errors.Is(err, fs.ErrClosed) || !strings.Contains(err.Error(), path) {
		t.Errorf("reader: got %d bytes and %v, want fs.ErrClosed that names the file", n, err)
	}
	if _, err := r.Open(path, layout.Direct); !errors.Is(err, fs.ErrClosed) || !strings.Contains(err.Error(), path) {
		t.Errorf("open: got %v, want fs.ErrClosed that names the file", err)
	}
	buffered, err := r.Open(path, layout.Buffered)
	if err != nil {
		t.Fatal(err)
	}
	defer buffered.Close()
	got := make([]byte, len(want))
	if _, err := buffered.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("buffered: got %v, want the file: it needs no ring", err)
	}
}

func TestRingFileAfterItsClose(t *testing.T) {
	path, _ := diskFile(t, 8192)
	f := openRinged(t, openRing(t, 0), path)
	if err := f.Close(); err != nil {
		t.Errorf("close: got %v", err)
	}
	if err := f.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("second close: got %v, want fs.ErrClosed as os.File has it", err)
	}
	if _, err := f.ReadAt(slot(4096), 0); !errors.Is(err, fs.ErrClosed) || !strings.Contains(err.Error(), path) {
		t.Errorf("read: got %v, want fs.ErrClosed that names the file", err)
	}
}

func TestRingIsAFileSystem(t *testing.T) {
	path, want := diskFile(t, 100)
	r := openRing(t, 0)
	info, err := r.Stat(path)
	if err != nil || info.Size() != int64(len(want)) {
		t.Errorf("Stat: got %v and %v", info, err)
	}
	entries, err := r.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("ReadDir: got %v and %v, want one file", entries, err)
	}
	if _, err := r.Open(path+"-none", layout.Direct); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open: got %v, want fs.ErrNotExist", err)
	}
	if _, err := r.Open(filepath.Dir(path), layout.Direct); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("Open of a folder: got %v, want a refusal", err)
	}
}

func TestRingOptions(t *testing.T) {
	for _, depth := range []int{-1, 4097} {
		if r, err := layout.OpenRing(layout.RingOptions{Depth: depth}); r != nil || err == nil || !strings.Contains(err.Error(), "want 1 to 4096") {
			t.Errorf("depth %d: got %v, want the limits", depth, err)
		}
	}
	if runtime.GOOS != "linux" {
		if _, err := layout.OpenRing(layout.RingOptions{}); !errors.Is(err, layout.ErrNoRing) {
			t.Errorf("got %v, want ErrNoRing", err)
		}
	}
}

func TestEngineNames(t *testing.T) {
	path, data := diskFile(t, 8192)
	mem := memfs.New(memfs.Options{})
	if err := mem.WriteFile("/f", data); err != nil {
		t.Fatal(err)
	}
	ring := openRing(t, 0)
	for _, test := range []struct {
		fsys layout.FS
		path string
		mode layout.Mode
		want string
	}{
		{layout.OS(), path, layout.Buffered, layout.EngineBuffered},
		{layout.OS(), path, layout.Direct, layout.EnginePread},
		{ring, path, layout.Buffered, layout.EngineBuffered},
		{ring, path, layout.Direct, layout.EngineRing},
		{mem, "/f", layout.Buffered, layout.EngineBuffered},
	} {
		f, err := test.fsys.Open(test.path, test.mode)
		if err != nil {
			t.Fatal(err)
		}
		if test.mode == layout.Direct && f.Direct() == (layout.Alignment{}) {
			test.want = layout.EngineBuffered // this disk knows no direct reads
		}
		if got := layout.Engine(f); got != test.want {
			t.Errorf("%T with mode %d: got %q, want %q", test.fsys, test.mode, got, test.want)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	hidden := forwards{openRinged(t, ring, path)}
	if got := layout.Engine(hidden); got != layout.EnginePread {
		t.Errorf("a wrapper without a reader: got %q, want %q", got, layout.EnginePread)
	}
	if err := hidden.Close(); err != nil {
		t.Error(err)
	}
	if got := layout.Engine(unnamed{}); got != "direct" {
		t.Errorf("aligned file without a name: got %q, want direct", got)
	}
}

// forwards is a wrapper that hides the reader of a file, but not its engine.
type forwards struct{ layout.File }

func (f forwards) Engine() string { return layout.Engine(f.File) }

// unnamed is a direct file that does not say what reads it.
type unnamed struct{ layout.File }

func (unnamed) Direct() layout.Alignment { return layout.Alignment{Memory: 1, Offset: 512} }

func TestDirectReadsDoNotAllocate(t *testing.T) {
	eachEngine(t, func(t *testing.T, fsys layout.FS) {
		path, _ := diskFile(t, 1<<20)
		f := openDirect(t, fsys, path).(layout.VectorFile)
		buf := slot(64 << 10)
		bufs := [][]byte{buf[:32<<10], buf[32<<10 : 48<<10], buf[48<<10:]}
		if n := testing.AllocsPerRun(100, func() {
			if _, err := f.ReadAt(buf, 64<<10); err != nil {
				t.Error(err)
			}
			if _, err := f.ReadVAt(bufs, 64<<10); err != nil {
				t.Error(err)
			}
		}); n >= 1 && !layout.RaceEnabled {
			t.Errorf("got %v allocations for two reads, want none", n)
		}
	})
}

func TestReadersDoNotAllocate(t *testing.T) {
	path, _ := diskFile(t, 1<<20)
	f := openRinged(t, openRing(t, 0), path)
	r := layout.NewReader(f)
	defer r.Close()
	buf := slot(64 << 10)
	bufs := [][]byte{buf[:32<<10], buf[32<<10 : 48<<10], buf[48<<10:]}
	if n := testing.AllocsPerRun(100, func() {
		for i := range bufs {
			r.Start(f, i, bufs[i:i+1], int64(i)<<16)
		}
		for range bufs {
			if _, _, err := r.Wait(); err != nil {
				t.Error(err)
			}
		}
	}); n != 0 && !layout.RaceEnabled {
		t.Errorf("got %v allocations for three reads, want none", n)
	}
}

// TestRingTruncatedFile: a file that shrinks under its reader ends where it ends.
func TestRingTruncatedFile(t *testing.T) {
	eachEngine(t, func(t *testing.T, fsys layout.FS) {
		path, want := diskFile(t, 64<<10)
		f := openDirect(t, fsys, path)
		if err := os.Truncate(path, 32<<10); err != nil {
			t.Fatal(err)
		}
		buf := slot(64 << 10)
		n, err := f.ReadAt(buf, 0)
		if n != 32<<10 || err != io.EOF || !bytes.Equal(buf[:n], want[:n]) {
			t.Errorf("got %d bytes and %v, want half and io.EOF", n, err)
		}
	})
}
