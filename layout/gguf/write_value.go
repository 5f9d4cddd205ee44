package gguf

import (
	"encoding/binary"
	"fmt"
	"slices"
)

func appendString(b []byte, s string, order byteOrder) []byte {
	return append(order.AppendUint64(b, uint64(len(s))), s...)
}

// appendValue appends a value as it stands in the file: its kind, then its bytes.
func appendValue(b []byte, value any, order byteOrder) ([]byte, error) {
	switch v := value.(type) {
	case Value:
		return v.appendTo(b, order), nil
	case string:
		return appendText(b, v, order)
	case []string:
		b = appendArray(b, KindString, len(v), order)
		for _, s := range v {
			if len(s) > maxStringBytes {
				return nil, fmt.Errorf("a string of %d bytes, the limit is %d", len(s), maxStringBytes)
			}
			b = appendString(b, s, order)
		}
		return b, nil
	}
	kind, n, ok := plainKind(value)
	if !ok {
		return nil, fmt.Errorf("a value of type %T has no kind", value)
	}
	if n >= 0 {
		b = appendArray(b, kind, n, order)
	} else {
		b = order.AppendUint32(b, uint32(kind))
	}
	return binary.Append(b, order, value)
}

func appendText(b []byte, s string, order byteOrder) ([]byte, error) {
	if len(s) > maxStringBytes {
		return nil, fmt.Errorf("a string of %d bytes, the limit is %d", len(s), maxStringBytes)
	}
	return appendString(order.AppendUint32(b, uint32(KindString)), s, order), nil
}

func appendArray(b []byte, elem Kind, n int, order byteOrder) []byte {
	b = order.AppendUint32(order.AppendUint32(b, uint32(KindArray)), uint32(elem))
	return order.AppendUint64(b, uint64(n))
}

// appendTo appends a value that was read, in another byte order if need be.
func (v Value) appendTo(b []byte, order byteOrder) []byte {
	if v.kind == KindArray {
		b = appendArray(b, v.elem, v.n, order)
	} else {
		b = order.AppendUint32(b, uint32(v.kind))
	}
	if orderOf(v.big) == order {
		return append(b, v.raw...)
	}
	if v.Elem() == KindString {
		for raw := v.raw; len(raw) > 0; {
			n := orderOf(v.big).Uint64(raw)
			b = appendString(b, string(raw[8:8+n]), order)
			raw = raw[8+n:]
		}
		return b
	}
	size, at := int(v.Elem().fixed()), len(b)
	b = append(b, v.raw...)
	for ; at < len(b); at += size {
		slices.Reverse(b[at : at+size])
	}
	return b
}

// plainKind is the kind of a value of fixed width, or of the elements of a slice
// of them, whose length is n; n is -1 for a single value.
func plainKind(value any) (kind Kind, n int, ok bool) {
	switch v := value.(type) {
	case uint8:
		return KindUint8, -1, true
	case int8:
		return KindInt8, -1, true
	case uint16:
		return KindUint16, -1, true
	case int16:
		return KindInt16, -1, true
	case uint32:
		return KindUint32, -1, true
	case int32:
		return KindInt32, -1, true
	case float32:
		return KindFloat32, -1, true
	case bool:
		return KindBool, -1, true
	case uint64:
		return KindUint64, -1, true
	case int64:
		return KindInt64, -1, true
	case float64:
		return KindFloat64, -1, true
	case []uint8:
		return KindUint8, len(v), true
	case []int8:
		return KindInt8, len(v), true
	case []uint16:
		return KindUint16, len(v), true
	case []int16:
		return KindInt16, len(v), true
	case []uint32:
		return KindUint32, len(v), true
	case []int32:
		return KindInt32, len(v), true
	case []float32:
		return KindFloat32, len(v), true
	case []bool:
		return KindBool, len(v), true
	case []uint64:
		return KindUint64, len(v), true
	case []int64:
		return KindInt64, len(v), true
	case []float64:
		return KindFloat64, len(v), true
	}
	return 0, 0, false
}
