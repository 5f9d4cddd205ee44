package stream

import (
	"os"

	"golang.org/x/sys/unix"
)

// forget drops what was read from the page cache. A file system that cannot is let be.
func forget(f *os.File, offset, bytes int64) error {
	_ = unix.Fadvise(int(f.Fd()), offset, bytes, unix.FADV_DONTNEED)
	return nil
}

func mapFile(path string, size int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
}

func unmapFile(b []byte) error { return unix.Munmap(b) }
