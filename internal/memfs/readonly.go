package memfs

import (
	"bytes"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"time"

	"outrider/layout"
)

// ReadOnly is a file system of byte slices that counts what its readers do: for
// tests of those who must close what they open and read no more than they need.
// Its folders cannot be listed.
type ReadOnly struct {
	Files map[string][]byte
	Opens atomic.Int64 // files open now
	Bytes atomic.Int64 // read so far
}

var _ layout.FS = (*ReadOnly)(nil)

// Open opens a file; the mode makes no difference.
func (f *ReadOnly) Open(name string, _ layout.Mode) (layout.File, error) {
	b, ok := f.Files[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	f.Opens.Add(1)
	return &readOnlyFile{fs: f, Reader: bytes.NewReader(b)}, nil
}

// Stat tells a file's name and size.
func (f *ReadOnly) Stat(name string) (fs.FileInfo, error) {
	b, ok := f.Files[name]
	if !ok {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return readOnlyInfo{name, int64(len(b))}, nil
}

// ReadDir fails.
func (f *ReadOnly) ReadDir(name string) ([]fs.DirEntry, error) {
	return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrInvalid}
}

type readOnlyFile struct {
	*bytes.Reader
	fs *ReadOnly
}

func (f *readOnlyFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.Reader.ReadAt(p, off)
	f.fs.Bytes.Add(int64(n))
	return n, err
}

// ReadVAt reads buffer by buffer.
func (f *readOnlyFile) ReadVAt(bufs [][]byte, off int64) (int, error) {
	done := 0
	for _, p := range bufs {
		n, err := f.ReadAt(p, off+int64(done))
		if done += n; err != nil && n < len(p) {
			return done, err
		}
	}
	return done, nil
}

func (f *readOnlyFile) Direct() layout.Alignment { return layout.Alignment{} }
func (f *readOnlyFile) Close() error             { f.fs.Opens.Add(-1); return nil }

type readOnlyInfo struct {
	name string
	size int64
}

func (i readOnlyInfo) Name() string       { return filepath.Base(i.name) }
func (i readOnlyInfo) Size() int64        { return i.size }
func (i readOnlyInfo) Mode() fs.FileMode  { return 0o444 }
func (i readOnlyInfo) ModTime() time.Time { return time.Time{} }
func (i readOnlyInfo) IsDir() bool        { return false }
func (i readOnlyInfo) Sys() any           { return nil }
