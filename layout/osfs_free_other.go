//go:build !linux && !darwin && !windows

package layout

import (
	"errors"
	"io/fs"
)

func freeBytes(dir string) (int64, error) {
	return 0, &fs.PathError{Op: "free space", Path: dir, Err: errors.ErrUnsupported}
}

func deviceOf(fs.FileInfo) (uint64, bool) { return 0, false }
