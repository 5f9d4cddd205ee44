package ggml

import (
	"bytes"
	"unsafe"
)

// Numbers of enum ggml_type that callers need.
const (
	TypeF32 = 0
	TypeI32 = 26
)

const (
	maxDims     = 4  // GGML_MAX_DIMS
	maxSources  = 10 // GGML_MAX_SRC
	maxName     = 64 // GGML_MAX_NAME
	maxOpParams = 64 // GGML_MAX_OP_PARAMS, bytes
)

// Tensor is struct ggml_tensor of llama.cpp v0.5.0. It lies in the library's memory:
// a pointer to it is valid as long as the library's graph or model is, in a callback
// until it returns.
type Tensor struct {
	Type    int32
	Buffer  unsafe.Pointer
	Dims    [maxDims]int64  // ne: elements, fastest first
	Strides [maxDims]uint64 // nb: bytes
	Op      int32
	Params  [maxOpParams / 4]int32
	Flags   int32
	Sources [maxSources]*Tensor
	ViewOf  *Tensor
	ViewAt  uint64
	Data    unsafe.Pointer
	name    [maxName]byte
	Extra   unsafe.Pointer
	_       [8]byte
}

// nameAt is where the name lies; the filter in assembly knows the number too.
const nameAt = unsafe.Offsetof(Tensor{}.name)

// Name copies the tensor's name.
func (t *Tensor) Name() string { return string(t.rawName()) }

// HasName compares without copying.
func (t *Tensor) HasName(name string) bool { return string(t.rawName()) == name }

func (t *Tensor) rawName() []byte {
	if n := bytes.IndexByte(t.name[:], 0); n >= 0 {
		return t.name[:n]
	}
	return t.name[:]
}

// Float32s is row i of a float32 tensor: Dims[0] numbers in the library's memory.
func (t *Tensor) Float32s(i int64) []float32 {
	return unsafe.Slice((*float32)(t.row(i)), t.Dims[0])
}

// Int32s is row i of an int32 tensor: Dims[0] numbers in the library's memory. Rows of
// a view lie further apart than they are long: the ids of the chosen experts are the
// first of a row of all experts.
func (t *Tensor) Int32s(i int64) []int32 {
	return unsafe.Slice((*int32)(t.row(i)), t.Dims[0])
}

func (t *Tensor) row(i int64) unsafe.Pointer {
	return unsafe.Add(t.Data, i*int64(t.Strides[1]))
}

// Stack says where the parts of a tensor lie of which each expert has one (its last
// dimension): number i begins at data + i*stride, and there are count of them.
func (t *Tensor) Stack(data unsafe.Pointer, stride int64, count int) {
	t.Data = data
	last := t.Rank() - 1
	t.Dims[last] = int64(count)
	t.Strides[last] = uint64(stride)
	for i := last + 1; i < maxDims; i++ {
		t.Strides[i] = uint64(stride) * uint64(count)
	}
}

// Rank is how many dimensions the tensor has, at least 1.
func (t *Tensor) Rank() int {
	n := maxDims
	for n > 1 && t.Dims[n-1] == 1 {
		n--
	}
	return n
}
