package torchfile

import (
	"archive/zip"
	"bytes"
	"testing"

	"outrider/trace/importer/internal/torchfile/torchwrite"
)

type (
	dict   = torchwrite.Dict
	pair   = torchwrite.Pair
	tuple  = torchwrite.Tuple
	tensor = torchwrite.Tensor
)

var int32s = torchwrite.Int32s

func must(t testing.TB, b []byte, err error) []byte {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func save(t testing.TB, v any) []byte {
	t.Helper()
	b, err := torchwrite.Save(v)
	return must(t, b, err)
}

func archive(t testing.TB, code []byte, storages ...[]byte) []byte {
	t.Helper()
	b, err := torchwrite.Archive(code, storages...)
	return must(t, b, err)
}

// zipped is a zip file of pairs of name and content.
func zipped(t testing.TB, files ...string) []byte {
	t.Helper()
	var entries []torchwrite.Entry
	for i := 0; i < len(files); i += 2 {
		entries = append(entries, torchwrite.Entry{Name: files[i], Data: []byte(files[i+1])})
	}
	b, err := torchwrite.Zip(zip.Store, entries...)
	return must(t, b, err)
}

func open(b []byte) (*File, error) { return Open(bytes.NewReader(b), int64(len(b))) }
