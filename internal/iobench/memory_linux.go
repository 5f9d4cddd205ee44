package iobench

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// inMemory names the file system of a file if that holds its files in memory.
func inMemory(path string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(path), &st); err != nil {
		return ""
	}
	switch int64(st.Type) {
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.RAMFS_MAGIC:
		return "ramfs"
	}
	return ""
}
