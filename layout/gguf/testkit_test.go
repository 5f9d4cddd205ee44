package gguf_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"outrider/internal/memfs"
	"outrider/internal/testfiles"
	"outrider/layout"
	"outrider/layout/gguf"
)

// oneFile is a file system with the writer's checkpoint as "m.gguf".
func oneFile(t testing.TB, w *gguf.Writer) *memfs.ReadOnly {
	t.Helper()
	b, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return &memfs.ReadOnly{Files: map[string][]byte{"m.gguf": b}}
}

// split gives the writer's checkpoint as shards of so many tensors, by name.
func split(t testing.TB, w *gguf.Writer, prefix string, tensors ...int) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	_, err := w.WriteShards(prefix, tensors, func(name string) (io.WriteCloser, error) {
		return &memoryFile{name: name, files: files}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// memoryFile is in files when it is closed.
type memoryFile struct {
	bytes.Buffer
	name  string
	files map[string][]byte
}

func (m *memoryFile) Close() error {
	m.files[m.name] = m.Bytes()
	return nil
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
type sparseFS struct{ *memfs.ReadOnly }

type sparseFile struct{ layout.File }

func (f sparseFS) Open(name string, m layout.Mode) (layout.File, error) {
	file, err := f.ReadOnly.Open(name, m)
	return sparseFile{file}, err
}

func (sparseFile) Size() int64 { return 1 << 50 }

func (f sparseFile) ReadAt(p []byte, off int64) (int, error) {
	n, _ := f.File.ReadAt(p, off)
	clear(p[n:])
	return len(p), nil
}
