package filetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"unsafe"

	"outrider/layout"
)

const (
	poison = 0xA5 // what buffers hold before a read
	guard  = 256  // bytes on both sides of a buffer that no read may touch
)

// subject is an open file and what it holds.
type subject struct {
	layout.File
	content       []byte
	memory, block int // its alignment, 1 where it has none
}

func newSubject(open func([]byte) layout.File, size int) *subject {
	content := make([]byte, size)
	rng := rand.NewChaCha8([32]byte{byte(size), byte(size >> 8), 1})
	rng.Read(content)
	s := &subject{File: open(bytes.Clone(content)), content: content}
	a := s.Direct()
	s.memory, s.block = max(a.Memory, 1), max(a.Offset, 1)
	return s
}

// blocks is the bytes of about n that a read may ask for.
func (s *subject) blocks(n int) int { return (n + s.block - 1) / s.block * s.block }

// span keeps both alignments.
func (s *subject) span() int { return max(s.memory, s.block) }

// buffer is n bytes of poison between guards, at an address that keeps the
// file's alignment and no multiple of it.
type buffer struct {
	p    []byte
	slab []byte
}

func (s *subject) buffer(n int) buffer {
	slab := bytes.Repeat([]byte{poison}, n+2*guard+3*s.memory)
	address := int(uintptr(unsafe.Pointer(unsafe.SliceData(slab))) & uintptr(2*s.memory-1))
	at := guard
	for (address+at)%(2*s.memory) != s.memory%(2*s.memory) {
		at++
	}
	return buffer{p: slab[at : at+n : at+n], slab: slab}
}

// intact reports whether nothing but the buffer was touched.
func (b buffer) intact() error {
	at := int(uintptr(unsafe.Pointer(unsafe.SliceData(b.p))) - uintptr(unsafe.Pointer(unsafe.SliceData(b.slab))))
	before, after := b.slab[:at], b.slab[at+len(b.p):]
	if !poisoned(before) || !poisoned(after) {
		return fmt.Errorf("bytes around the buffer of %d were written to", len(b.p))
	}
	return nil
}

func poisoned(p []byte) bool { return bytes.Count(p, []byte{poison}) == len(p) }

// read reads a range and checks all about it.
func (s *subject) read(off, n int) error {
	b := s.buffer(n)
	got, err := s.ReadAt(b.p, int64(off))
	if err := s.judge(b.p, off, got, err); err != nil {
		return fmt.Errorf("ReadAt of %d bytes at %d: %w", n, off, err)
	}
	if err := b.intact(); err != nil {
		return fmt.Errorf("ReadAt of %d bytes at %d: %w", n, off, err)
	}
	return nil
}

// readV reads a range into buffers of the given sizes and checks all about it.
func (s *subject) readV(off int, sizes []int) error {
	v, ok := s.File.(layout.VectorFile)
	if !ok {
		return fmt.Errorf("%T is no layout.VectorFile", s.File)
	}
	bufs, parts := make([]buffer, len(sizes)), make([][]byte, len(sizes))
	for i, n := range sizes {
		bufs[i] = s.buffer(n)
		parts[i] = bufs[i].p
	}
	got, err := v.ReadVAt(parts, int64(off))
	if err := s.judge(bytes.Join(parts, nil), off, got, err); err != nil {
		return fmt.Errorf("ReadVAt of %d at %d: %w", sizes, off, err)
	}
	for i := range bufs {
		if err := bufs[i].intact(); err != nil {
			return fmt.Errorf("ReadVAt of %d at %d, buffer %d: %w", sizes, off, i, err)
		}
	}
	return nil
}

// judge compares an answer with what a file of this content must answer.
func (s *subject) judge(p []byte, off, n int, err error) error {
	want := s.content[min(off, len(s.content)):min(off+len(p), len(s.content))]
	switch {
	case n != len(want):
		return fmt.Errorf("got %d bytes and %v, want %d", n, err, len(want))
	case !bytes.Equal(p[:n], want):
		return fmt.Errorf("got wrong bytes from byte %d of %d on", differ(p, want), n)
	case n < len(p) && err != io.EOF:
		return fmt.Errorf("got error %v with %d of %d bytes, want io.EOF", err, n, len(p))
	case err != nil && (err != io.EOF || off+n < len(s.content)):
		return fmt.Errorf("got error %v with all %d bytes, want none", err, n)
	}
	return nil
}

func differ(a, b []byte) int {
	for i := range b {
		if a[i] != b[i] {
			return i
		}
	}
	return len(b)
}

// refuses holds a read to an error that is not the file's end, without a byte.
func refuses(what string, n int, err, want error, bufs ...buffer) error {
	if n != 0 || err == nil || errors.Is(err, io.EOF) || (want != nil && !errors.Is(err, want)) {
		if want == nil {
			want = errors.New("an error")
		}
		return fmt.Errorf("%s: got %d bytes and %v, want none and %v", what, n, err, want)
	}
	for _, b := range bufs {
		if !poisoned(b.slab) {
			return fmt.Errorf("%s: a buffer was written to", what)
		}
	}
	return nil
}

// split cuts n bytes into at most most parts that keep the file's alignment, some of them empty.
func (s *subject) split(rng *rand.Rand, n, most int) []int {
	var sizes []int
	for n > 0 && len(sizes) < most-1 {
		part := min(s.blocks(rng.IntN(2*n/most+2)), n)
		sizes, n = append(sizes, part), n-part
	}
	return append(sizes, n)
}
