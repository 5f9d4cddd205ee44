package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"outrider/layout"
)

// fileWriter makes a file whole or not at all.
type fileWriter struct {
	mode  fs.FileMode
	keep  bool // what is there already is an error, not replaced
	write func(io.Writer) error
	check func(path string) error // reads back what was written
}

// to writes beside the path, syncs, reads back and renames; it leaves nothing when
// it fails. It returns the file's size.
func (w fileWriter) to(path string) (size int64, err error) {
	dir, fsys := filepath.Dir(path), layout.OS()
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return 0, err
	}
	temp := f.Name()
	defer func() {
		if err != nil {
			_ = os.Remove(temp) // the failure before says more
		}
	}()
	buffer := bufio.NewWriterSize(f, 1<<16)
	if err := errors.Join(w.write(buffer), buffer.Flush(), f.Chmod(w.mode), f.Sync(), f.Close()); err != nil {
		return 0, err
	}
	if err := w.check(temp); err != nil {
		return 0, fmt.Errorf("read back what was written: %w", err)
	}
	info, err := os.Stat(temp)
	if err != nil {
		return 0, err
	}
	rename := os.Rename
	if w.keep {
		rename = fsys.Rename // replaces nothing
	}
	if err := rename(temp, path); err != nil {
		return 0, err
	}
	return info.Size(), fsys.SyncDir(dir)
}
