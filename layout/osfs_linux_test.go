package layout

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// readerFunc is a file system that does with a read what it likes.
type readerFunc func(p []byte, off int64) (int, error)

func (f readerFunc) ReadAt(p []byte, off int64) (int, error) { return f(p, off) }

func TestProbeCatchesFalseReads(t *testing.T) {
	data := make([]byte, 3000)
	for i := range data {
		data[i] = byte(i * 7)
	}
	plain := bytes.NewReader(data)
	for _, test := range []struct {
		name   string
		direct readerFunc
		reason string
		err    error
	}{
		{"honest", plain.ReadAt, "", nil},
		{"buffer untouched", func(p []byte, off int64) (int, error) { return len(p), nil }, "other bytes", nil},
		{"one byte untouched", func(p []byte, off int64) (int, error) {
			last := p[len(p)-1]
			n, err := plain.ReadAt(p, off)
			p[len(p)-1] = last
			return n, err
		}, "other bytes", nil},
		{"zeros", func(p []byte, off int64) (int, error) { clear(p); return len(p), nil }, "other bytes", nil},
		{"short", func(p []byte, off int64) (int, error) { n, _ := plain.ReadAt(p[:100], off); return n, nil }, "brought 100 bytes", nil},
		{"nothing", func(p []byte, off int64) (int, error) { return 0, io.EOF }, "brought 0 bytes", nil},
		{"refused", func(p []byte, off int64) (int, error) { return 0, unix.EINVAL }, "", unix.EINVAL},
	} {
		reason, err := probe(test.direct, plain, Alignment{Memory: 512, Offset: 512}, int64(len(data)))
		if !strings.Contains(reason, test.reason) || (reason == "") != (test.reason == "") || !errors.Is(err, test.err) {
			t.Errorf("%s: got reason %q and error %v, want %q and %v", test.name, reason, err, test.reason, test.err)
		}
	}
	small := readerFunc(func(p []byte, off int64) (int, error) { return bytes.NewReader(data[:100]).ReadAt(p, off) })
	if reason, err := probe(small, small, Alignment{Memory: 512, Offset: 512}, 100); reason != "" || err != nil {
		t.Errorf("less than a block: got %q and %v, want neither", reason, err)
	}
}

func TestProbeKeepsNoMoreThanTheAlignment(t *testing.T) {
	align := Alignment{Memory: 512, Offset: 1024}
	data := make([]byte, 10_000)
	plain := bytes.NewReader(data)
	reason, err := probe(readerFunc(func(p []byte, off int64) (int, error) {
		double := Alignment{Memory: 1024, Offset: 1}
		if !align.check(p, off) || double.check(p, off) || off%2048 == 0 || len(p)%2048 == 0 {
			t.Errorf("got a read of %d bytes at %d, want one that keeps %+v and no multiple of it", len(p), off, align)
		}
		return plain.ReadAt(p, off)
	}), plain, align, int64(len(data)))
	if reason != "" || err != nil {
		t.Errorf("got %q and %v, want neither", reason, err)
	}
}

func TestFallbackDropsPagesBehind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(path), &st); err != nil || st.Type == unix.TMPFS_MAGIC {
		t.Skipf("%s lies in memory: nothing to drop", path)
	}
	want := bytes.Repeat([]byte("outrider"), 10_000)
	if err := os.WriteFile(path, want, 0o666); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Sync(); err != nil { // only clean pages can be dropped
		t.Fatal(err)
	}
	f, err := openBuffered(path, "for the test")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make([]byte, len(want))
	if n, err := f.ReadAt(got, 0); n != len(want) || err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes and %v, want all", n, err)
	}
	var stat unix.Cachestat_t
	if err := unix.Cachestat(uint(w.Fd()), &unix.CachestatRange{Off: 0, Len: uint64(len(want))}, &stat, 0); err != nil {
		t.Skipf("the kernel does not tell what is cached: %v", err)
	}
	if stat.Cache > 1 {
		t.Errorf("got %d pages cached behind the read, want none, or one that the file's end cuts", stat.Cache)
	}
	if FallbackReason(f) != "for the test" {
		t.Errorf("got reason %q", FallbackReason(f))
	}
}

func TestRenameCheckedReplacesNothing(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, name := range []string{a, b} {
		if err := os.WriteFile(name, []byte(name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := renameChecked(a, b); !errors.Is(err, os.ErrExist) {
		t.Errorf("got %v, want os.ErrExist", err)
	}
	if err := renameChecked(a, filepath.Join(dir, "c")); err != nil {
		t.Error(err)
	}
}
