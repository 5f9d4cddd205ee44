package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"outrider/layout"
	"outrider/router/learned"
)

// writeNetwork writes the file beside its place, reads it back, and moves it there.
// It overwrites nothing unless forced, and leaves nothing when it fails.
func writeNetwork(path string, m *learned.Model, force bool) (size int64, err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".train-*")
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // the failure before says more
		}
	}()
	if err := errors.Join(m.Save(f), f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return 0, err
	}
	if size, err = readBack(f.Name()); err != nil {
		return 0, err
	}
	fsys, rename := layout.OS(), os.Rename
	if !force {
		rename = fsys.Rename // replaces nothing
	}
	if err := rename(f.Name(), path); err != nil {
		return 0, err
	}
	return size, fsys.SyncDir(dir)
}

// readBack proves that what was written can be read.
func readBack(path string) (size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close() // nothing was written
	if _, err := learned.Load(f); err != nil {
		return 0, fmt.Errorf("read back what was written: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
