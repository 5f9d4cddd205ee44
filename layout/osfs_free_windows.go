package layout

import (
	"io/fs"

	"golang.org/x/sys/windows"
)

// freeBytes is what this user may still write.
func freeBytes(dir string) (int64, error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, &fs.PathError{Op: "free space", Path: dir, Err: err}
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, nil, nil); err != nil {
		return 0, &fs.PathError{Op: "free space", Path: dir, Err: err}
	}
	return int64(min(free, 1<<62)), nil
}

func deviceOf(fs.FileInfo) (uint64, bool) { return 0, false }
