package ggufwrite

import (
	"encoding/binary"
	"fmt"
)

// GGUF's numbers for kinds of values.
const (
	kindString = 8
	kindArray  = 9
)

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// encode gives a value as it stands in the file: its kind, then its bytes.
func encode(value any) ([]byte, error) {
	le := binary.LittleEndian
	switch v := value.(type) {
	case string:
		return appendString(le.AppendUint32(nil, kindString), v), nil
	case []string:
		b := arrayHead(kindString, len(v))
		for _, s := range v {
			b = appendString(b, s)
		}
		return b, nil
	}
	kind, n, err := plainKind(value)
	if err != nil {
		return nil, err
	}
	b := le.AppendUint32(nil, kind)
	if n >= 0 {
		b = arrayHead(kind, n)
	}
	return binary.Append(b, le, value)
}

func arrayHead(elem uint32, n int) []byte {
	le := binary.LittleEndian
	return le.AppendUint64(le.AppendUint32(le.AppendUint32(nil, kindArray), elem), uint64(n))
}

// plainKind is the kind number of a value of fixed width, or of the elements
// of a slice of them, whose length is n; n is -1 for a single value.
func plainKind(value any) (kind uint32, n int, err error) {
	switch v := value.(type) {
	case uint8:
		return 0, -1, nil
	case int8:
		return 1, -1, nil
	case uint16:
		return 2, -1, nil
	case int16:
		return 3, -1, nil
	case uint32:
		return 4, -1, nil
	case int32:
		return 5, -1, nil
	case float32:
		return 6, -1, nil
	case bool:
		return 7, -1, nil
	case uint64:
		return 10, -1, nil
	case int64:
		return 11, -1, nil
	case float64:
		return 12, -1, nil
	case []uint8:
		return 0, len(v), nil
	case []int8:
		return 1, len(v), nil
	case []uint16:
		return 2, len(v), nil
	case []int16:
		return 3, len(v), nil
	case []uint32:
		return 4, len(v), nil
	case []int32:
		return 5, len(v), nil
	case []float32:
		return 6, len(v), nil
	case []bool:
		return 7, len(v), nil
	case []uint64:
		return 10, len(v), nil
	case []int64:
		return 11, len(v), nil
	case []float64:
		return 12, len(v), nil
	}
	return 0, 0, fmt.Errorf("a value of type %T has no kind", value)
}
