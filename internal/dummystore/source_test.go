package dummystore

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"outrider/layout"

	"pgregory.net/rapid"
)

// A range reads the same however it is cut.
func TestSourceIsTheSameAtEveryOffset(t *testing.T) {
	s := source{size: 1003}
	whole := make([]byte, s.size)
	if n, err := s.ReadAt(whole, 0); int64(n) != s.size || err != nil {
		t.Fatalf("got %d %v, want %d nil", n, err, s.size)
	}
	rapid.Check(t, func(t *rapid.T) {
		off := rapid.Int64Range(0, s.size-1).Draw(t, "off")
		p := make([]byte, rapid.IntRange(0, 1100).Draw(t, "n"))
		n, err := s.ReadAt(p, off)
		want := whole[off:min(off+int64(len(p)), s.size)]
		if !bytes.Equal(p[:n], want) {
			t.Fatalf("%d bytes at %d: got other bytes than the whole has there", len(p), off)
		}
		if cut := n < len(p); cut != (err == io.EOF) || (err != nil && err != io.EOF) {
			t.Fatalf("%d bytes at %d: got %d and %v, want io.EOF exactly where cut", len(p), off, n, err)
		}
	})
	if n, err := s.ReadAt(whole, s.size); n != 0 || err != io.EOF {
		t.Errorf("at the end: got %d %v, want 0 EOF", n, err)
	}
	if _, err := s.ReadAt(whole, -1); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("before the start: got %v, want an error", err)
	}
}

func TestSourceFSHasItsOwnFilesToo(t *testing.T) {
	f := sourceFS{WriteFS: layout.OS(), size: 10}
	if got, err := f.Open(sourceName, layout.Buffered); err != nil || got.Size() != 10 {
		t.Errorf("got %v %v, want the made-up file", got, err)
	}
	got, err := f.Open("source_test.go", layout.Buffered)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	if got.Size() == 10 {
		t.Error("got the made-up file, want this one")
	}
	if _, err := layout.OS().Stat(sourceName); err == nil {
		t.Errorf("%s exists: the made-up file would hide it", sourceName)
	}
}
