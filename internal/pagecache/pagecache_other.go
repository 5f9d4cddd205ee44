//go:build !linux

package pagecache

import (
	"errors"
	"fmt"
	"runtime"
)

// Drop fails here.
func Drop(path string) error { return unsupported(path) }

// Cached fails here.
func Cached(path string) (pages, total int64, err error) { return 0, 0, unsupported(path) }

func unsupported(path string) error {
	return fmt.Errorf("pagecache: %s: the page cache cannot be looked into on %s: %w", path, runtime.GOOS, errors.ErrUnsupported)
}
