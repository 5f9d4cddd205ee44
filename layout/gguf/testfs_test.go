package gguf_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"outrider/internal/ggufwrite"
	"outrider/internal/testfiles"
	"outrider/layout"
	"outrider/layout/gguf"
)

// bytesFS is a file system of byte slices that knows how many files are open
// and how many bytes were read.
type bytesFS struct {
	files map[string][]byte
	open  atomic.Int64
	read  atomic.Int64
}

var _ layout.FS = (*bytesFS)(nil)

func (f *bytesFS) Open(name string, _ layout.Mode) (layout.File, error) {
	b, ok := f.files[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	f.open.Add(1)
	return &bytesFile{fs: f, Reader: bytes.NewReader(b)}, nil
}

func (f *bytesFS) Stat(name string) (fs.FileInfo, error) {
	b, ok := f.files[name]
	if !ok {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return bytesInfo{name, int64(len(b))}, nil
}

func (f *bytesFS) ReadDir(name string) ([]fs.DirEntry, error) {
	return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrInvalid}
}

type bytesFile struct {
	*bytes.Reader
	fs *bytesFS
}

func (f *bytesFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.Reader.ReadAt(p, off)
	f.fs.read.Add(int64(n))
	return n, err
}

func (f *bytesFile) Direct() layout.Alignment { return layout.Alignment{} }
func (f *bytesFile) Close() error             { f.fs.open.Add(-1); return nil }

type bytesInfo struct {
	name string
	size int64
}

func (i bytesInfo) Name() string       { return filepath.Base(i.name) }
func (i bytesInfo) Size() int64        { return i.size }
func (i bytesInfo) Mode() fs.FileMode  { return 0o444 }
func (i bytesInfo) ModTime() time.Time { return time.Time{} }
func (i bytesInfo) IsDir() bool        { return false }
func (i bytesInfo) Sys() any           { return nil }

// oneFile is a file system with the writer's checkpoint as "m.gguf".
func oneFile(t testing.TB, w *ggufwrite.Writer) *bytesFS {
	t.Helper()
	b, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return &bytesFS{files: map[string][]byte{"m.gguf": b}}
}

func open(t testing.TB, fsys layout.FS, path string) *gguf.File {
	t.Helper()
	f, err := gguf.Open(fsys, path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// dataFile finds a file of the tinymoe model: in the repository's testdata, or
// in the shared data beside it. The test is skipped where there is none.
func dataFile(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(testfiles.Root(t), "testdata", "tinymoe", name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	return testfiles.Shared(t, "tinymoe/"+name)
}

// sparseFS claims 2^50 bytes for each file; beyond its bytes are zeros.
type sparseFS struct{ *bytesFS }

type sparseFile struct{ layout.File }

func (f sparseFS) Open(name string, m layout.Mode) (layout.File, error) {
	file, err := f.bytesFS.Open(name, m)
	return sparseFile{file}, err
}

func (sparseFile) Size() int64 { return 1 << 50 }

func (f sparseFile) ReadAt(p []byte, off int64) (int, error) {
	n, _ := f.File.ReadAt(p, off)
	clear(p[n:])
	return len(p), nil
}
