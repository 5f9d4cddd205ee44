package pagecache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Drop asks the kernel to forget the cached pages of a file, after writing back
// those that are dirty. Pages that somebody has mapped or is reading stay, and a
// file system that lives in memory (tmpfs) keeps all: Cached tells what is left.
// Anybody who may read the file may drop it.
func Drop(path string) error {
	f, err := openRegular(path)
	if err != nil {
		return err
	}
	defer f.Close()
	// A file system that cannot sync says EINVAL; it has nothing to write back.
	if err := f.Sync(); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("pagecache: write back %s: %w", path, err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("pagecache: drop %s: %w", path, err)
	}
	return nil
}

// Cached is how many of the file's pages are in the page cache, and of how many;
// a page has os.Getpagesize bytes. It asks with cachestat, and with mincore where
// the kernel has none (before 6.5) or a sandbox forbids it.
//
// Both answer only those who own the file or may write to it: since Linux 5.2
// mincore tells all others that everything is cached. They get a
// fs.ErrPermission instead of that lie.
func Cached(path string) (pages, total int64, err error) {
	f, err := openRegular(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, 0, fmt.Errorf("pagecache: %w", err)
	}
	if err := mayAsk(path, info); err != nil {
		return 0, 0, err
	}
	page := int64(os.Getpagesize())
	total = (info.Size() + page - 1) / page
	if pages, err = cachestat(f); err != nil {
		pages, err = mincore(f, info.Size())
	}
	if err != nil {
		return 0, 0, fmt.Errorf("pagecache: %s: %w", path, err)
	}
	return min(pages, total), total, nil // readahead may have brought pages behind the end
}

// openRegular refuses everything else: opening a pipe would wait.
func openRegular(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("pagecache: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("pagecache: %s is not a regular file (%v)", path, info.Mode().Type())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("pagecache: %w", err)
	}
	return f, nil
}

// mayAsk repeats the kernel's own check.
func mayAsk(path string, info fs.FileInfo) error {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Geteuid() {
		return nil
	}
	if unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) == nil {
		return nil
	}
	return fmt.Errorf("pagecache: %s: the kernel tells only the owner and those who may write: %w", path, fs.ErrPermission)
}

// cachestat counts with one call.
func cachestat(f *os.File) (int64, error) {
	var st unix.Cachestat_t
	if err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &st, 0); err != nil { // length 0: to the end
		return 0, os.NewSyscallError("cachestat", err)
	}
	return int64(st.Cache), nil
}
