package pagecache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// cacheable makes a file of some pages in a folder whose file system can forget
// pages, and skips the test where it cannot.
func cacheable(t *testing.T, bytes int) string {
	t.Helper()
	dir := t.TempDir()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	if uint32(st.Type) == unix.TMPFS_MAGIC || uint32(st.Type) == unix.RAMFS_MAGIC {
		t.Skipf("%s lies in memory (tmpfs): its pages cannot be dropped; set TMPDIR to a folder on a disk", dir)
	}
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, make([]byte, bytes), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDropAndCached(t *testing.T) {
	page := os.Getpagesize()
	path := cacheable(t, 100*page+1)
	want := func(when string, least, most int64) {
		t.Helper()
		pages, total, err := Cached(path)
		if err != nil {
			t.Fatal(err)
		}
		if total != 101 || pages < least || pages > most {
			t.Errorf("%s: got %d of %d pages, want %d to %d of 101", when, pages, total, least, most)
		}
	}
	want("written", 101, 101)
	if err := Drop(path); err != nil { // dirty pages: must be written back first
		t.Fatal(err)
	}
	want("dropped", 0, 0)
	if _, err := os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	want("read", 101, 101)
	if err := Drop(path); err != nil {
		t.Fatal(err)
	}
	want("dropped again", 0, 0)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.ReadAt(make([]byte, 1), 0); err != nil {
		t.Fatal(err)
	}
	want("one byte read", 1, 101)
}

// Both ways of asking give the same answer.
func TestCachestatAndMincoreAgree(t *testing.T) {
	page := os.Getpagesize()
	path := cacheable(t, 64*page)
	if err := Drop(path); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM); err != nil { // no readahead
		t.Fatal(err)
	}
	if _, err := f.ReadAt(make([]byte, 3*page), 7*int64(page)); err != nil {
		t.Fatal(err)
	}
	got, err := mincore(f, 64*int64(page))
	if err != nil || got != 3 {
		t.Errorf("mincore: got %d %v, want 3", got, err)
	}
	got, err = cachestat(f)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		t.Skipf("cachestat is not to be had here: %v", err)
	}
	if err != nil || got != 3 {
		t.Errorf("cachestat: got %d %v, want 3", got, err)
	}
}

// A mapped page stays: whoever measures must have unmapped first.
func TestMappedPagesStay(t *testing.T) {
	path := cacheable(t, 8*os.Getpagesize())
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	view, err := unix.Mmap(int(f.Fd()), 0, 8*os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if view[0] != 0 {
		t.Fatal("got other bytes than were written")
	}
	if err := Drop(path); err != nil {
		t.Fatal(err)
	}
	if pages, _, err := Cached(path); err != nil || pages < 1 {
		t.Errorf("mapped: got %d %v, want at least the page that was touched", pages, err)
	}
	if err := unix.Munmap(view); err != nil {
		t.Fatal(err)
	}
	if err := Drop(path); err != nil {
		t.Fatal(err)
	}
	if pages, _, err := Cached(path); err != nil || pages != 0 {
		t.Errorf("unmapped: got %d %v, want 0", pages, err)
	}
}

func TestEmptyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Drop(path); err != nil {
		t.Error(err)
	}
	if pages, total, err := Cached(path); pages != 0 || total != 0 || err != nil {
		t.Errorf("got %d of %d, %v, want nothing of nothing", pages, total, err)
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path string
		want error
		word string
	}{
		{filepath.Join(dir, "missing"), fs.ErrNotExist, "missing"},
		{dir, nil, "not a regular file"},
		{pipe, nil, "not a regular file"},
	} {
		_, _, err := Cached(tt.path)
		for _, err := range []error{Drop(tt.path), err} {
			if err == nil || (tt.want != nil && !errors.Is(err, tt.want)) || !strings.Contains(err.Error(), tt.word) {
				t.Errorf("%s: got %v, want an error that says %q", tt.path, err, tt.word)
			}
		}
	}
}

// The kernel's own example of a file that others may only read.
func TestStrangersAreNotLiedTo(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may ask about every file")
	}
	if _, _, err := Cached("/etc/passwd"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %v, want %v", err, fs.ErrPermission)
	}
}

func TestTheOwnerMayAskAboutWhatNobodyMayWrite(t *testing.T) {
	path := cacheable(t, 4*os.Getpagesize())
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	if pages, total, err := Cached(path); pages != 4 || total != 4 || err != nil {
		t.Errorf("got %d of %d, %v, want all 4", pages, total, err)
	}
}
