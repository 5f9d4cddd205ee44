package gguf

import (
	"fmt"
	"math"
	"strconv"
)

// Kind is the type of a metadata value.
type Kind uint32

// The kinds of metadata, by their number in the file.
const (
	KindUint8   Kind = 0
	KindInt8    Kind = 1
	KindUint16  Kind = 2
	KindInt16   Kind = 3
	KindUint32  Kind = 4
	KindInt32   Kind = 5
	KindFloat32 Kind = 6
	KindBool    Kind = 7
	KindString  Kind = 8
	KindArray   Kind = 9
	KindUint64  Kind = 10
	KindInt64   Kind = 11
	KindFloat64 Kind = 12
)

var kinds = [...]struct {
	name string
	size int64 // 0: not fixed
}{
	KindUint8: {"uint8", 1}, KindInt8: {"int8", 1}, KindUint16: {"uint16", 2}, KindInt16: {"int16", 2},
	KindUint32: {"uint32", 4}, KindInt32: {"int32", 4}, KindFloat32: {"float32", 4}, KindBool: {"bool", 1},
	KindString: {"string", 0}, KindArray: {"array", 0},
	KindUint64: {"uint64", 8}, KindInt64: {"int64", 8}, KindFloat64: {"float64", 8},
}

// String is the kind's name: "uint32".
func (k Kind) String() string {
	if !k.known() {
		return fmt.Sprintf("kind %d", uint32(k))
	}
	return kinds[k].name
}

func (k Kind) known() bool  { return uint64(k) < uint64(len(kinds)) }
func (k Kind) fixed() int64 { return kinds[k].size }

// Value is one metadata value. It refers to the header's bytes and decodes
// when asked; keep the result of Strings, Ints and Floats if it is used often.
// The accessors report false when the value is of another kind. Values are
// immutable and safe for concurrent use. The zero Value is an empty uint8 that
// no accessor accepts.
type Value struct {
	kind Kind
	elem Kind   // of an array
	n    int    // elements of an array
	big  bool   // big-endian
	raw  []byte // checked when the header was parsed: decoding cannot fail
}

func (v Value) order() byteOrder { return orderOf(v.big) }

// Kind is the value's kind.
func (v Value) Kind() Kind { return v.kind }

// Elem is the kind of an array's elements; of another value its own kind.
func (v Value) Elem() Kind {
	if v.kind == KindArray {
		return v.elem
	}
	return v.kind
}

// Len is the number of an array's elements; 1 for another value.
func (v Value) Len() int {
	if v.kind == KindArray {
		return v.n
	}
	return 1
}

// String renders the value for people: a string as it is, an array by its
// length and kind only.
func (v Value) String() string {
	if s, ok := v.Str(); ok {
		return s
	}
	if b, ok := v.Bool(); ok {
		return strconv.FormatBool(b)
	}
	if v.kind == KindArray {
		return fmt.Sprintf("[%d %v]", v.n, v.elem)
	}
	if i, ok := v.Int(); ok {
		return strconv.FormatInt(i, 10)
	}
	if u, ok := v.Uint(); ok {
		return strconv.FormatUint(u, 10)
	}
	f, _ := v.Float()
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// Str is the value of a string.
func (v Value) Str() (string, bool) {
	if v.kind != KindString || len(v.raw) < 8 {
		return "", false
	}
	return string(v.raw[8:]), true
}

// Bool is the value of a bool.
func (v Value) Bool() (bool, bool) {
	if v.kind != KindBool {
		return false, false
	}
	return v.raw[0] != 0, true
}

// Int is the value of any integer that 64 signed bits hold.
func (v Value) Int() (int64, bool) { return intAt(v.kind, v.raw, v.order()) }

// Uint is the value of any integer that is not negative.
func (v Value) Uint() (uint64, bool) {
	if v.kind == KindUint64 {
		return v.order().Uint64(v.raw), true
	}
	i, ok := v.Int()
	return uint64(i), ok && i >= 0
}

// Float is the value of a float32 or float64.
func (v Value) Float() (float64, bool) { return floatAt(v.kind, v.raw, v.order()) }

// Strings decodes an array of strings into a new slice.
func (v Value) Strings() ([]string, bool) {
	if v.kind != KindArray || v.elem != KindString {
		return nil, false
	}
	out := make([]string, v.n)
	raw, order := v.raw, v.order()
	for i := range out {
		n := order.Uint64(raw)
		out[i] = string(raw[8 : 8+n])
		raw = raw[8+n:]
	}
	return out, true
}

// Ints decodes an array of integers of any width into a new slice.
func (v Value) Ints() ([]int64, bool) { return array(v, intAt) }

// Floats decodes an array of floats into a new slice.
func (v Value) Floats() ([]float64, bool) { return array(v, floatAt) }

// Bools decodes an array of bools into a new slice.
func (v Value) Bools() ([]bool, bool) {
	return array(v, func(k Kind, raw []byte, _ byteOrder) (bool, bool) { return k == KindBool && raw[0] != 0, k == KindBool })
}

func array[T any](v Value, at func(Kind, []byte, byteOrder) (T, bool)) ([]T, bool) {
	if v.kind != KindArray || v.elem.fixed() == 0 {
		return nil, false
	}
	order := v.order()
	var zero [8]byte // an empty array has a kind too
	if _, ok := at(v.elem, zero[:], order); !ok {
		return nil, false
	}
	out := make([]T, v.n)
	size := int(v.elem.fixed())
	for i := range out {
		x, ok := at(v.elem, v.raw[i*size:], order)
		if !ok {
			return nil, false
		}
		out[i] = x
	}
	return out, true
}

func intAt(k Kind, raw []byte, order byteOrder) (int64, bool) {
	if len(raw) == 0 {
		return 0, false
	}
	switch k {
	case KindUint8:
		return int64(raw[0]), true
	case KindInt8:
		return int64(int8(raw[0])), true
	case KindUint16:
		return int64(order.Uint16(raw)), true
	case KindInt16:
		return int64(int16(order.Uint16(raw))), true
	case KindUint32:
		return int64(order.Uint32(raw)), true
	case KindInt32:
		return int64(int32(order.Uint32(raw))), true
	case KindUint64:
		u := order.Uint64(raw)
		return int64(u), u <= math.MaxInt64
	case KindInt64:
		return int64(order.Uint64(raw)), true
	}
	return 0, false
}

func floatAt(k Kind, raw []byte, order byteOrder) (float64, bool) {
	switch k {
	case KindFloat32:
		return float64(math.Float32frombits(order.Uint32(raw))), true
	case KindFloat64:
		return math.Float64frombits(order.Uint64(raw)), true
	}
	return 0, false
}
