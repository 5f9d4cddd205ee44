package router

import (
	"encoding/binary"
	"math"
)

// bytes is room for n bytes while saving, and the next n bytes while loading.
func (s *State) bytes(n int) []byte {
	if s.err != nil {
		return nil
	}
	if !s.Loading() {
		at := len(s.body)
		s.body = append(s.body, make([]byte, n)...)
		return s.body[at:]
	}
	if n > len(s.body) {
		s.Refuse("%d bytes are left, want %d", len(s.body), n)
		return nil
	}
	b := s.body[:n]
	s.body = s.body[n:]
	return b
}

// Has visits whether an optional part is there, and returns what the file says
// of it while loading. At least so many bytes of the section must then follow:
// given what the part takes, memory can be made for it.
func (s *State) Has(has bool, bytes int) bool {
	n := 0
	if has {
		n = 1
	}
	s.Int(&n, 0, 1)
	if s.err != nil {
		return false
	}
	if s.Loading() && n == 1 && bytes > len(s.body) {
		s.Refuse("%d bytes are left, want %d", len(s.body), bytes)
		return false
	}
	return n == 1
}

// Int visits a number from least to most.
func (s *State) Int(v *int, least, most int) {
	if s.err != nil {
		return
	}
	x := int64(*v)
	if s.Loading() {
		var n int
		if x, n = binary.Varint(s.body); n <= 0 {
			s.Refuse("a number is cut off or too large")
			return
		}
		s.body = s.body[n:]
	}
	if x < int64(least) || x > int64(most) {
		s.Refuse("a number is %d, want %d to %d", x, least, most)
		return
	}
	if *v = int(x); !s.Loading() {
		s.body = binary.AppendVarint(s.body, x)
	}
}

// Bytes visits at most so many bytes: b while saving. What it returns while
// loading is valid within the section.
func (s *State) Bytes(b []byte, most int) []byte {
	n := len(b)
	s.Int(&n, 0, most)
	at := s.bytes(n)
	if s.Loading() {
		return at
	}
	copy(at, b)
	return b
}

// Text visits a text of at most so many bytes.
func (s *State) Text(v *string, most int) {
	if b := s.Bytes([]byte(*v), most); s.err == nil {
		*v = string(b)
	}
}

// Float visits a number from least to most.
func (s *State) Float(v *float32, least, most float32) {
	one := [1]float32{*v}
	s.Floats(one[:], least, most)
	*v = one[0]
}

// Floats visits len(v) numbers from least to most, both finite: what is not a
// number is refused, and so is infinity.
func (s *State) Floats(v []float32, least, most float32) {
	b := s.bytes(4 * len(v))
	if s.err != nil {
		return
	}
	if s.Loading() {
		for i := range v {
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	} else {
		for i, x := range v {
			binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(x))
		}
	}
	for i, x := range v {
		if !(x >= least && x <= most) {
			s.Refuse("number %d is %v, want %v to %v", i, x, least, most)
			return
		}
	}
}

// Int32s visits len(v) numbers from least to most.
func (s *State) Int32s(v []int32, least, most int32) { visitIntegers(s, v, least, most) }

// Uint32s visits len(v) numbers from least to most.
func (s *State) Uint32s(v []uint32, least, most uint32) { visitIntegers(s, v, least, most) }

// Uint16s visits len(v) numbers from least to most.
func (s *State) Uint16s(v []uint16, least, most uint16) { visitIntegers(s, v, least, most) }

// Uint64s visits len(v) numbers from least to most.
func (s *State) Uint64s(v []uint64, least, most uint64) { visitIntegers(s, v, least, most) }

func visitIntegers[T int32 | uint16 | uint32 | uint64](s *State, v []T, least, most T) {
	size := binary.Size(least)
	b := s.bytes(size * len(v))
	if s.err != nil {
		return
	}
	for i := range v {
		at := b[size*i:][:size]
		if s.Loading() {
			var x uint64
			for k, c := range at {
				x |= uint64(c) << (8 * k)
			}
			v[i] = T(x)
		} else {
			for k := range at {
				at[k] = byte(uint64(v[i]) >> (8 * k))
			}
		}
		if v[i] < least || v[i] > most {
			s.Refuse("number %d is %d, want %d to %d", i, v[i], least, most)
			return
		}
	}
}
