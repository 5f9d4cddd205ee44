package export

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"outrider/layout"
)

// file is written from its start to its end, and synced when it is closed.
type file struct {
	layout.WriteFile
	name string
	at   int64
}

// create makes a file of the folder.
func (f *folder) create(name string) (io.WriteCloser, error) {
	w, err := f.fs.Create(filepath.Join(f.temp, name))
	if err != nil {
		return nil, err
	}
	f.names = append(f.names, name)
	return &file{WriteFile: w, name: name}, nil
}

func (w *file) Write(p []byte) (int, error) {
	n, err := w.WriteAt(p, w.at)
	w.at += int64(n)
	if err == nil && n != len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return n, fmt.Errorf("write %d bytes at %d of %s: %w", len(p), w.at-int64(n), w.name, err)
	}
	return n, nil
}

func (w *file) Close() error { return errors.Join(w.Sync(), w.WriteFile.Close()) }
