package faultfs

import (
	"bytes"
	"errors"
	"io/fs"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"outrider/internal/memfs"
	"outrider/layout"
)

var content = []byte("0123456789")

func newFS(t testing.TB, rules ...Rule) (*FS, layout.File) {
	t.Helper()
	mem := memfs.New(memfs.Options{})
	if err := mem.WriteFile("/d/lane-0.bin", content); err != nil {
		t.Fatal(err)
	}
	f := New(mem, rules...)
	file, err := f.Open("/d/lane-0.bin", layout.Buffered)
	if err != nil {
		t.Fatal(err)
	}
	return f, file
}

func TestReadFaults(t *testing.T) {
	old := bytes.Repeat([]byte{'-'}, 10)
	for _, test := range []struct {
		name string
		rule Rule
		n    int
		want string
		err  error
	}{
		{"none fits", Rule{Op: ReadAt, Name: "other", Kind: Fail}, 10, "0123456789", nil},
		{"fail", Rule{Op: ReadAt, Name: "lane-*", Kind: Fail, Err: syscall.EIO}, 0, "----------", syscall.EIO},
		{"fail without error", Rule{Op: ReadAt, Kind: Fail}, 0, "----------", ErrInjected},
		{"short", Rule{Op: ReadAt, Kind: Short, Bytes: 4}, 4, "0123------", nil},
		{"short with error", Rule{Op: ReadAt, Kind: Short, Bytes: 4, Err: syscall.EIO}, 4, "0123------", syscall.EIO},
		{"silent", Rule{Op: ReadAt, Kind: Silent}, 10, "----------", nil},
		{"flip", Rule{Op: ReadAt, Kind: Flip, Bit: 8}, 10, "0023456789", nil},
		{"not yet", Rule{Op: ReadAt, From: 2, Kind: Fail}, 10, "0123456789", nil},
	} {
		for _, cuts := range [][]int{{10}, {3, 7}, {1, 0, 1, 5, 3}} { // one buffer, or more with the same bytes
			f, file := newFS(t, test.rule)
			p, bufs := bytes.Clone(old), [][]byte(nil)
			for rest := p; len(bufs) < len(cuts); {
				n := cuts[len(bufs)]
				bufs, rest = append(bufs, rest[:n]), rest[n:]
			}
			n, err := 0, error(nil)
			if len(cuts) == 1 {
				n, err = file.ReadAt(p, 0)
			} else {
				n, err = layout.ReadV(file, bufs, 0)
			}
			if n != test.n || string(p) != test.want || !errors.Is(err, test.err) {
				t.Errorf("%s into %v: got %d, %q, %v; want %d, %q, %v", test.name, cuts, n, p, err, test.n, test.want, test.err)
			}
			if f.Calls(ReadAt) != 1 || f.Calls(Open) != 1 {
				t.Errorf("%s into %v: got %d reads and %d opens counted, want 1 and 1", test.name, cuts, f.Calls(ReadAt), f.Calls(Open))
			}
		}
	}
}

func TestRange(t *testing.T) {
	f, file := newFS(t, Rule{Op: ReadAt, From: 2, To: 3, Kind: Fail}, Rule{Op: ReadAt, From: 5, Kind: Fail, Err: syscall.EIO})
	for i, want := range []error{nil, ErrInjected, ErrInjected, nil, syscall.EIO, syscall.EIO} {
		if _, err := file.ReadAt(make([]byte, 1), 0); !errors.Is(err, want) {
			t.Errorf("call %d: got %v, want %v", i+1, err, want)
		}
	}
	if f.Seen(0) != 6 {
		t.Errorf("got %d calls seen, want 6", f.Seen(0))
	}
	f.Clear()
	if _, err := file.ReadAt(make([]byte, 1), 0); err != nil {
		t.Errorf("after Clear: %v", err)
	}
}

func TestWriteFaults(t *testing.T) {
	for _, test := range []struct {
		name string
		rule Rule
		n    int
		want string
	}{
		{"short", Rule{Op: WriteAt, Kind: Short, Bytes: 3}, 3, "012"},
		{"silent", Rule{Op: WriteAt, Kind: Silent}, 10, ""},
		{"flip", Rule{Op: WriteAt, Kind: Flip, Bit: 0}, 10, "1123456789"},
	} {
		mem := memfs.New(memfs.Options{})
		f := New(mem, test.rule)
		w, err := f.Create("/x")
		if err != nil {
			t.Fatal(err)
		}
		n, err := w.WriteAt(content, 0)
		data, _ := mem.ReadFile("/x")
		if n != test.n || err != nil || string(data) != test.want || string(content) != "0123456789" {
			t.Errorf("%s: got %d, %v, %q; want %d and %q", test.name, n, err, data, test.n, test.want)
		}
	}
}

func TestDelayAndHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, file := newFS(t, Rule{Op: ReadAt, To: 1, Kind: Delay, Delay: time.Hour}, Rule{Op: ReadAt, From: 2, Kind: Hang})
		start := time.Now()
		if n, err := file.ReadAt(make([]byte, 4), 0); n != 4 || err != nil || time.Since(start) != time.Hour {
			t.Errorf("delay: got %d and %v after %v, want 4 bytes after an hour", n, err, time.Since(start))
		}
		done := make(chan int)
		go func() {
			n, _ := file.ReadAt(make([]byte, 4), 0)
			done <- n
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Error("hang: the read came back before Release")
		default:
		}
		f.Release()
		f.Release()
		if n := <-done; n != 4 {
			t.Errorf("hang: got %d bytes after Release, want 4", n)
		}
	})
}

// readOnly hides the writing part of a file system.
type readOnly struct{ layout.FS }

func TestOtherOperations(t *testing.T) {
	f, file := newFS(t, Rule{Op: Close, Name: "lane-0.bin", Kind: Fail, Err: syscall.EIO}, Rule{Op: Rename, Name: "a", Kind: Fail})
	if err := file.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("close: got %v, want EIO", err)
	}
	if _, err := file.ReadAt(make([]byte, 1), 0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("read after a failed close: got %v, want fs.ErrClosed", err)
	}
	if err := errors.Join(f.Mkdir("/a"), f.SyncDir("/a")); err != nil {
		t.Error(err)
	}
	if err := f.Rename("/a", "/b"); !errors.Is(err, ErrInjected) {
		t.Errorf("rename: got %v, want ErrInjected", err)
	}
	if err := New(readOnly{memfs.New(memfs.Options{})}).Mkdir("/a"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("mkdir of a read-only file system: got %v, want ErrUnsupported", err)
	}
}
