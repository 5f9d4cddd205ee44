package safetensors_test

import (
	"encoding/binary"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout"
	"outrider/layout/safetensors"
)

// oneFile is a file system with this header and so many bytes of data, 0, 1,
// 2, …, as "m.safetensors".
func oneFile(header string, data int) *memfs.ReadOnly {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	for i := range data {
		b = append(b, byte(i))
	}
	return &memfs.ReadOnly{Files: map[string][]byte{"m.safetensors": b}}
}

func open(t testing.TB, fsys layout.FS, path string) *safetensors.File {
	t.Helper()
	f, err := safetensors.Open(fsys, path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
