package dequant

import (
	"errors"
	"fmt"
)

// ErrType: a tensor type that this package cannot turn into float32.
var ErrType = errors.New("tensor type cannot be dequantised")

// Format is one tensor type: Bytes bytes hold a block of Block elements.
type Format struct {
	Name  string // as GGUF tools print it: "Q4_K"
	Block int
	Bytes int
	row   func(src []byte, dst []float32) // lengths are checked
}

var formats = [...]Format{
	{"F32", 1, 4, rowF32},
	{"F16", 1, 2, rowF16},
	{"BF16", 1, 2, rowBF16},
	{"Q4_0", 32, 18, rowQ4_0},
	{"Q4_1", 32, 20, rowQ4_1},
	{"Q5_0", 32, 22, rowQ5_0},
	{"Q5_1", 32, 24, rowQ5_1},
	{"Q8_0", 32, 34, rowQ8_0},
	{"Q4_K", 256, 144, rowQ4K},
	{"Q5_K", 256, 176, rowQ5K},
	{"Q6_K", 256, 210, rowQ6K},
	{"MXFP4", 32, 17, rowMXFP4},
}

// Lookup finds a format by its name. The error is ErrType.
func Lookup(name string) (*Format, error) {
	for i := range formats {
		if formats[i].Name == name {
			return &formats[i], nil
		}
	}
	return nil, fmt.Errorf("dequant: %w: %q", ErrType, name)
}

// Names lists the formats.
func Names() []string {
	names := make([]string, len(formats))
	for i := range formats {
		names[i] = formats[i].Name
	}
	return names
}

// RowBytes is the size of a row of n elements; n must be a multiple of Block.
func (f *Format) RowBytes(n int) int { return n / f.Block * f.Bytes }

// Row fills dst from src. len(dst) must be a multiple of Block and src exactly
// RowBytes(len(dst)) long; otherwise dst is left as it was.
func (f *Format) Row(src []byte, dst []float32) error {
	if len(dst)%f.Block != 0 {
		return fmt.Errorf("dequant: %s: row of %d elements is no multiple of %d", f.Name, len(dst), f.Block)
	}
	if want := f.RowBytes(len(dst)); len(src) != want {
		return fmt.Errorf("dequant: %s: row of %d elements in %d bytes, want %d", f.Name, len(dst), len(src), want)
	}
	f.row(src, dst)
	return nil
}

// Row is Lookup and Format.Row in one.
func Row(name string, src []byte, dst []float32) error {
	f, err := Lookup(name)
	if err != nil {
		return err
	}
	return f.Row(src, dst)
}
