package dummystore

import (
	"encoding/binary"
	"fmt"
	"io"

	"outrider/layout"
)

// sourceName is the checkpoint's one file, as the manifest will name it. Nothing
// can lie below /dev/null, so that the name shadows no real file.
const sourceName = "/dev/null/outrider-dummy-checkpoint"

// sourceFS is a file system that has the made-up file besides its own.
type sourceFS struct {
	layout.WriteFS
	size int64
}

func (s sourceFS) Open(name string, mode layout.Mode) (layout.File, error) {
	if name == sourceName {
		return source{size: s.size}, nil
	}
	return s.WriteFS.Open(name, mode)
}

// source is a file whose bytes are made up as they are read. It has no state.
type source struct{ size int64 }

var _ layout.File = source{}

const wordBytes = 8

func (s source) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("dummystore: read at %d", off)
	}
	if off >= s.size {
		return 0, io.EOF
	}
	var err error
	if int64(len(p)) > s.size-off {
		p, err = p[:s.size-off], io.EOF
	}
	s.fill(p, off)
	return len(p), err
}

// fill writes the bytes from off on: words at multiples of eight, of which the
// first and the last may be cut.
func (s source) fill(p []byte, off int64) {
	word := uint64(off / wordBytes)
	if skip := off % wordBytes; skip != 0 {
		var b [wordBytes]byte
		binary.LittleEndian.PutUint64(b[:], mix(word))
		p = p[copy(p, b[skip:]):]
		word++
	}
	for ; len(p) >= wordBytes; word++ {
		binary.LittleEndian.PutUint64(p, mix(word))
		p = p[wordBytes:]
	}
	if len(p) > 0 {
		var b [wordBytes]byte
		binary.LittleEndian.PutUint64(b[:], mix(word))
		copy(p, b[:])
	}
}

// mix is the n-th number of splitmix64 (Steele, Lea and Flood, "Fast splittable
// pseudorandom number generators", 2014): every word can be made on its own.
func mix(n uint64) uint64 {
	z := (n + 1) * 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (s source) Size() int64              { return s.size }
func (s source) Direct() layout.Alignment { return layout.Alignment{} }
func (s source) Close() error             { return nil }
