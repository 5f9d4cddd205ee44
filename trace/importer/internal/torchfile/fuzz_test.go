package torchfile

import (
	"errors"
	"testing"

	"outrider/trace/importer/internal/torchfile/torchwrite"
)

// FuzzPickle: no pickle may make the machine panic, hang or run anything.
func FuzzPickle(f *testing.F) {
	code, storages, err := torchwrite.Pickle(dict{
		{"records", []any{dict{{"positions", []any{0, 300, -1, int64(1) << 40}}, {"topk", int32s([]int{1, 2}, 1, 2)}}}},
		{"t", tuple{nil, true, 0.5, tuple{1, 2, 3, 4}}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(code)
	f.Add([]byte("\x80\x02](Na}(NNu)\x85q\x00h\x00e."))
	f.Add([]byte("\x80\x02cposix\nsystem\n(X\x02\x00\x00\x00lstR."))
	f.Fuzz(func(t *testing.T, code []byte) {
		check(t, readAll(archive(t, code, storages...)))
	})
}

// FuzzOpen does the same with whole files.
func FuzzOpen(f *testing.F) {
	f.Add(save(f, []any{int32s([]int{1, 2}, 1, 2), "text"}))
	f.Add(append([]byte{}, legacyMagic...))
	f.Fuzz(func(t *testing.T, data []byte) { check(t, readAll(data)) })
}

func check(t *testing.T, err error) {
	var e *Error
	if err != nil && !errors.As(err, &e) {
		t.Fatalf("got %v, want an Error", err)
	}
}
