// Package torchwrite writes what PyTorch's torch.save would write of plain
// containers and tensors of numbers: files for tests. What it is given it writes,
// checking nothing, so that tests can write wrong files too.
package torchwrite

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
)

// Values are nil, bool, int, int64, float64, string, []any (a list), and these.
type (
	// Tuple is a Python tuple.
	Tuple []any
	// Dict is a Python dict, in this order.
	Dict []Pair
	// Pair is an entry of a Dict: key and value.
	Pair [2]any
)

// Tensor is a tensor and the storage that it is a view of. The same pointer
// twice is the same tensor twice, as Python's pickler writes it.
type Tensor struct {
	Class  string // of the storage: "IntStorage"
	Shape  []int
	Stride []int // nil: dense, row-major
	Offset int   // in numbers
	Data   []byte
	Numel  int // of the storage
}

// Int32s is a dense tensor of int32.
func Int32s(shape []int, values ...int32) *Tensor {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return &Tensor{Class: "IntStorage", Shape: shape, Data: b, Numel: len(values)}
}

// Save is a whole file.
func Save(v any) ([]byte, error) {
	code, storages, err := Pickle(v)
	if err != nil {
		return nil, err
	}
	return Archive(code, storages...)
}

// Archive is a file with this pickle and these storages, in the order in which
// PyTorch writes the entries.
func Archive(pickle []byte, storages ...[]byte) ([]byte, error) {
	entries := []Entry{{"archive/data.pkl", pickle}, {"archive/byteorder", []byte("little")}}
	for i, data := range storages {
		entries = append(entries, Entry{"archive/data/" + strconv.Itoa(i), data})
	}
	return Zip(zip.Store, append(entries, Entry{"archive/version", []byte("3\n")})...)
}

// Entry is a file of a zip file.
type Entry struct {
	Name string
	Data []byte
}

// Zip is a zip file with entries packed by the method.
func Zip(method uint16, entries ...Entry) ([]byte, error) {
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for _, e := range entries {
		w, err := z.CreateHeader(&zip.FileHeader{Name: e.Name, Method: method})
		if err != nil {
			return nil, fmt.Errorf("torchwrite: %w", err)
		}
		if _, err := w.Write(e.Data); err != nil {
			return nil, fmt.Errorf("torchwrite: %w", err)
		}
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("torchwrite: %w", err)
	}
	return buf.Bytes(), nil
}
