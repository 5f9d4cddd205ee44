package memfs

import (
	"errors"
	"io"
	"io/fs"
	"slices"
	"syscall"
	"testing"

	"outrider/layout"
)

func TestTree(t *testing.T) {
	f := New(Options{})
	if err := f.WriteFile("/a/b/x", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Create("/none/x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("create without folder: got %v, want fs.ErrNotExist", err)
	}
	if _, err := f.Create("/a/b/x"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create again: got %v, want fs.ErrExist", err)
	}
	if err := f.Mkdir("/a/b/x/y"); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("mkdir below a file: got %v, want ENOTDIR", err)
	}
	if err := f.Mkdir("/c"); err != nil {
		t.Error(err)
	}
	if err := f.Rename("/a/b", "/c"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("rename onto a folder: got %v, want fs.ErrExist", err)
	}
	if err := f.Rename("/a/b", "/c/d"); err != nil {
		t.Error(err)
	}
	if got, want := f.Names(), []string{"/a", "/c", "/c/d", "/c/d/x"}; !slices.Equal(got, want) {
		t.Errorf("names: got %v, want %v", got, want)
	}
	entries, err := f.ReadDir("/c")
	if err != nil || len(entries) != 1 || entries[0].Name() != "d" || !entries[0].IsDir() {
		t.Errorf("folder: got %v and %v, want d", entries, err)
	}
	if info, err := f.Stat("/c/d/x"); err != nil || info.Size() != 5 || !info.Mode().IsRegular() {
		t.Errorf("stat: got %v and %v", info, err)
	}
	if err := errors.Join(f.SyncDir("/c"), f.RemoveAll("/c"), f.RemoveAll("/c")); err != nil {
		t.Error(err)
	}
	if _, err := f.Open("/c/d/x", layout.Buffered); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open what was removed: got %v, want fs.ErrNotExist", err)
	}
}

func TestReadsAndWrites(t *testing.T) {
	f := New(Options{})
	w, err := f.Create("x")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.WriteAt([]byte("world"), 3); n != 5 || err != nil {
		t.Errorf("write: got %d and %v", n, err)
	}
	r, err := f.Open("x", layout.Direct)
	if err != nil {
		t.Fatal(err)
	}
	if r.Direct() != (layout.Alignment{}) || layout.FallbackReason(r) == "" {
		t.Errorf("got %v and reason %q, want buffered with a reason", r.Direct(), layout.FallbackReason(r))
	}
	buf := make([]byte, 10)
	if n, err := r.ReadAt(buf, 0); n != 8 || err != io.EOF || string(buf[:n]) != "\x00\x00\x00world" {
		t.Errorf("read: got %q and %v, want all and io.EOF", buf[:n], err)
	}
	if n, err := r.ReadAt(buf, 99); n != 0 || err != io.EOF {
		t.Errorf("read behind the end: got %d and %v, want io.EOF", n, err)
	}
	if err := errors.Join(w.Sync(), w.Close(), r.Close()); err != nil {
		t.Error(err)
	}
	if _, err := r.ReadAt(buf, 0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("read after close: got %v, want fs.ErrClosed", err)
	}
	if _, err := w.WriteAt(buf, 0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("write after close: got %v, want fs.ErrClosed", err)
	}
}

func TestDirectAlignment(t *testing.T) {
	f := New(Options{Align: layout.Alignment{Memory: 64, Offset: 512}})
	if err := f.WriteFile("/x", make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	r, err := f.Open("/x", layout.Direct)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2048)
	for !aligned(layout.Alignment{Memory: 64, Offset: 1}, buf, 0) {
		buf = buf[1:]
	}
	for _, test := range []struct {
		name string
		p    []byte
		off  int64
		want error
	}{
		{"fits", buf[:512], 0, nil},
		{"end of the file", buf[:1024], 0, io.EOF},
		{"length", buf[:100], 0, layout.ErrUnaligned},
		{"offset", buf[:512], 100, layout.ErrUnaligned},
		{"address", buf[1:513], 0, layout.ErrUnaligned},
	} {
		if _, err := r.ReadAt(test.p, test.off); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, err, test.want)
		}
	}
}

func TestLimit(t *testing.T) {
	f := New(Options{Limit: 10})
	w, err := f.Create("/x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteAt(make([]byte, 8), 0); err != nil {
		t.Error(err)
	}
	if _, err := w.WriteAt(make([]byte, 8), 4); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want ENOSPC", err)
	}
	if free, err := f.Free("/"); free != 2 || err != nil {
		t.Errorf("free: got %d and %v, want 2", free, err)
	}
	if err := f.RemoveAll("/x"); err != nil {
		t.Error(err)
	}
	if free, _ := f.Free("/"); free != 10 {
		t.Errorf("free after removing: got %d, want 10", free)
	}
}
