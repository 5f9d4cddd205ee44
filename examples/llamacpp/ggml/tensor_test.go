package ggml

import (
	"testing"
	"unsafe"
)

// The layout is that of ggml.h: what the assembly and the library rely on.
func TestLayout(t *testing.T) {
	if nameAt != 256 || unsafe.Sizeof(Tensor{}) != 336 || unsafe.Offsetof(Tensor{}.Data) != 248 {
		t.Errorf("got name at %d, data at %d, size %d, want 256, 248, 336", nameAt, unsafe.Offsetof(Tensor{}.Data), unsafe.Sizeof(Tensor{}))
	}
	if at := unsafe.Offsetof(Tensor{}.Sources); at != 152 {
		t.Errorf("got sources at %d, want 152", at)
	}
	if at := unsafe.Offsetof(Filter{}.pass); at != 8 {
		t.Errorf("got pass at %d, want 8", at)
	}
}

// The ids of the chosen experts are a view of the sorted ids of all experts: rows are as
// far apart as these are long. A contiguous reading gives another row's ids.
func TestRowsOfAView(t *testing.T) {
	const experts, k, tokens = 8, 2, 3
	ids := make([]int32, experts*tokens)
	for i := range ids {
		ids[i] = int32(i)
	}
	x := &Tensor{Type: TypeI32, Dims: [maxDims]int64{k, tokens, 1, 1}, Strides: [maxDims]uint64{4, 4 * experts, 4 * experts * tokens, 4 * experts * tokens}, Data: unsafe.Pointer(&ids[0])}
	for i := range int64(tokens) {
		if got := x.Int32s(i); len(got) != k || got[0] != int32(i*experts) || got[1] != int32(i*experts)+1 {
			t.Errorf("row %d: got %v, want %d and the next", i, got, i*experts)
		}
	}
	numbers := []float32{0, 1, 2, 3, 4, 5}
	x = &Tensor{Dims: [maxDims]int64{2, 2, 1, 1}, Strides: [maxDims]uint64{4, 12, 24, 24}, Data: unsafe.Pointer(&numbers[0])}
	if got := x.Float32s(1); len(got) != 2 || got[0] != 3 || got[1] != 4 {
		t.Errorf("got %v, want 3 and 4", got)
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"":           "",
		"blk.0.x":    "blk.0.x",
		"cut\x00off": "cut",
		"a name that takes all of the sixty-four bytes that there are, yes": "a name that takes all of the sixty-four bytes that there are, ye",
	} {
		x := named(name, 0)
		if got := x.Name(); got != want || !x.HasName(want) || x.HasName(want+"x") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A stack has another count, address and stride of matrices; what a matrix is stays.
func TestStack(t *testing.T) {
	var memory [16]byte
	for _, c := range []struct {
		dims [maxDims]int64
		rank int
		want [maxDims]int64
		nb   [maxDims]uint64
	}{
		{[maxDims]int64{4, 3, 8, 1}, 3, [maxDims]int64{4, 3, 20, 1}, [maxDims]uint64{4, 16, 4096, 20 * 4096}},
		{[maxDims]int64{4, 8, 1, 1}, 2, [maxDims]int64{4, 20, 1, 1}, [maxDims]uint64{4, 4096, 20 * 4096, 20 * 4096}},
	} {
		x := &Tensor{Dims: c.dims, Strides: [maxDims]uint64{4, 16, 48, 384}}
		if got := x.Rank(); got != c.rank {
			t.Errorf("%v: got rank %d, want %d", c.dims, got, c.rank)
		}
		x.Stack(unsafe.Pointer(&memory[0]), 4096, 20)
		if x.Data != unsafe.Pointer(&memory[0]) || x.Dims != c.want || x.Strides != c.nb {
			t.Errorf("%v: got %v and %v, want %v and %v", c.dims, x.Dims, x.Strides, c.want, c.nb)
		}
	}
}
