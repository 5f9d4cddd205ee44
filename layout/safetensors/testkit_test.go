package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"sync/atomic"
	"testing"

	"outrider/layout"
	"outrider/layout/safetensors"
)

// bytesFS is a file system of byte slices that knows how many files are open.
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
	return &bytesFile{Reader: bytes.NewReader(b), fs: f}, nil
}

func (f *bytesFS) Stat(name string) (fs.FileInfo, error) {
	return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrInvalid}
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

// oneFile is a file system with this header and so many bytes of data, 0, 1,
// 2, …, as "m.safetensors".
func oneFile(header string, data int) *bytesFS {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	for i := range data {
		b = append(b, byte(i))
	}
	return &bytesFS{files: map[string][]byte{"m.safetensors": b}}
}

func open(t testing.TB, fsys layout.FS, path string) *safetensors.File {
	t.Helper()
	f, err := safetensors.Open(fsys, path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
