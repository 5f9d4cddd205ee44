package refmodel

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	// tensor keeps addresses as integers; this module asserts that the
	// collector does not move memory, and must be recent enough for the Go
	// release (an old one ends the program at start).
	_ "go4.org/unsafe/assume-no-moving-gc"
	"gorgonia.org/tensor"
)

// tensors multiplies by F32 experts through gorgonia.org/tensor, over the
// lent bytes themselves.
type tensors struct {
	vectors map[[2]int]vectors
	copied  []float32 // a matrix that could not be used in place
}

// vectors is the operand and the result of products of one shape. They are
// the tensors' own so that they are aligned alike for every token: the BLAS
// kernel's order of summation depends on the operand's address (not the matrix's).
type vectors struct {
	in, out   []float32
	inT, outT *tensor.Dense
}

const (
	floatAlign  = 4  // bytes, what a []float32 needs
	vectorAlign = 16 // bytes, what the SSE kernel aligns its operand to
)

// product multiplies each x by w into the y of the same place.
func (t *tensors) product(y [][]float32, w weights, x [][]float32) error {
	data, err := t.floats(w)
	if err != nil {
		return err
	}
	matrix := tensor.New(tensor.WithShape(w.rows, w.cols), tensor.WithBacking(data))
	v := t.forShape(w.rows, w.cols)
	for i := range x {
		copy(v.in, x[i])
		if _, err := matrix.MatVecMul(v.inT, tensor.WithReuse(v.outT)); err != nil {
			return fmt.Errorf("product of %d x %d: %w", w.rows, w.cols, err)
		}
		copy(y[i], v.out)
	}
	return nil
}

// floats is the matrix as float32, without a copy where the address is aligned
// (tensor accepts an odd one in silence) and the machine is little-endian.
func (t *tensors) floats(w weights) ([]float32, error) {
	n := w.rows * w.cols
	if len(w.data) != 4*n {
		return nil, fmt.Errorf("%w: %d bytes for %d x %d F32 weights", ErrExperts, len(w.data), w.rows, w.cols)
	}
	if start := unsafe.Pointer(unsafe.SliceData(w.data)); uintptr(start)%floatAlign == 0 && littleEndian() {
		return unsafe.Slice((*float32)(start), n), nil
	}
	t.copied = resize(t.copied, n)
	for i := range t.copied {
		t.copied[i] = math.Float32frombits(binary.LittleEndian.Uint32(w.data[4*i:]))
	}
	return t.copied, nil
}

func littleEndian() bool { return binary.NativeEndian.Uint16([]byte{1, 0}) == 1 }

func (t *tensors) forShape(rows, cols int) vectors {
	key := [2]int{rows, cols}
	if v, ok := t.vectors[key]; ok {
		return v
	}
	v := vectors{in: alignedFloats(cols), out: alignedFloats(rows)}
	v.inT = tensor.New(tensor.WithShape(cols), tensor.WithBacking(v.in))
	v.outT = tensor.New(tensor.WithShape(rows), tensor.WithBacking(v.out))
	if t.vectors == nil {
		t.vectors = make(map[[2]int]vectors)
	}
	t.vectors[key] = v
	return v
}

// alignedFloats is n floats whose first one lies on vectorAlign.
func alignedFloats(n int) []float32 {
	const perVector = vectorAlign / 4
	buf := make([]float32, n+perVector-1)
	skip := 0
	for uintptr(unsafe.Pointer(&buf[skip]))%vectorAlign != 0 {
		skip++
	}
	return buf[skip : skip+n : skip+n]
}
