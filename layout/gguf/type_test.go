package gguf_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"outrider/internal/dequant"
	"outrider/layout/gguf"
)

// Block sizes as ggml_blck_size and ggml_type_size of llama.cpp v0.4.0 give them.
func TestTypeSizes(t *testing.T) {
	want := map[gguf.Type]struct {
		name         string
		block, bytes int
	}{
		0: {"F32", 1, 4}, 1: {"F16", 1, 2}, 2: {"Q4_0", 32, 18}, 3: {"Q4_1", 32, 20}, 6: {"Q5_0", 32, 22}, 7: {"Q5_1", 32, 24},
		8: {"Q8_0", 32, 34}, 9: {"Q8_1", 32, 36}, 10: {"Q2_K", 256, 84}, 11: {"Q3_K", 256, 110}, 12: {"Q4_K", 256, 144},
		13: {"Q5_K", 256, 176}, 14: {"Q6_K", 256, 210}, 15: {"Q8_K", 256, 292}, 16: {"IQ2_XXS", 256, 66}, 17: {"IQ2_XS", 256, 74},
		18: {"IQ3_XXS", 256, 98}, 19: {"IQ1_S", 256, 50}, 20: {"IQ4_NL", 32, 18}, 21: {"IQ3_S", 256, 110}, 22: {"IQ2_S", 256, 82},
		23: {"IQ4_XS", 256, 136}, 24: {"I8", 1, 1}, 25: {"I16", 1, 2}, 26: {"I32", 1, 4}, 27: {"I64", 1, 8}, 28: {"F64", 1, 8},
		29: {"IQ1_M", 256, 56}, 30: {"BF16", 1, 2}, 34: {"TQ1_0", 256, 54}, 35: {"TQ2_0", 256, 66}, 39: {"MXFP4", 32, 17},
		40: {"NVFP4", 64, 36}, 41: {"Q1_0", 128, 18}, 42: {"Q2_0", 64, 18},
	}
	for n := range gguf.Type(300) {
		w, known := want[n]
		if n.Known() != known || n.BlockSize() != w.block || n.BlockBytes() != w.bytes {
			t.Errorf("type %d: got %v, %d elements in %d bytes, want %+v", uint32(n), n, n.BlockSize(), n.BlockBytes(), w)
		}
		if !known {
			continue
		}
		if back, ok := gguf.ParseType(w.name); n.String() != w.name || !ok || back != n {
			t.Errorf("type %d: got name %v and back %v, want %s", uint32(n), n, back, w.name)
		}
	}
	if got := gguf.Type(math.MaxUint32).String(); got != "type 4294967295" {
		t.Errorf("unknown type: got %q, want its number", got)
	}
	if _, ok := gguf.ParseType("type 99"); ok {
		t.Error("ParseType of an unknown type: got ok, want not")
	}
}

// A type without a size is named as well as can be, with what to do.
func TestTypeErrors(t *testing.T) {
	for typ, want := range map[gguf.Type]string{
		4: "number 4 was Q4_2, which ggml has withdrawn; get the model as Q4_0", 5: "was Q4_3", 31: "was Q4_0_4_4", 32: "was Q4_0_4_8", 33: "was Q4_0_8_8",
		36: "was IQ4_NL_4_4", 37: "was IQ4_NL_4_8", 38: "was IQ4_NL_8_8", 43: "number 43 is of a newer llama.cpp, or of another engine", 208: "get the model in a type up to Q2_0 (42)",
	} {
		if _, err := typ.Bytes([]int64{32}); !errors.Is(err, gguf.ErrType) || !strings.Contains(err.Error(), want) {
			t.Errorf("type %d: got %v, want %v with %q", uint32(typ), err, gguf.ErrType, want)
		}
	}
}

func TestDequantFormatsAgree(t *testing.T) {
	for _, name := range dequant.Names() {
		f, err := dequant.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		typ, ok := gguf.ParseType(name)
		if !ok || typ.BlockSize() != f.Block || typ.BlockBytes() != f.Bytes {
			t.Errorf("%s: got %d elements in %d bytes, want %d in %d", name, f.Block, f.Bytes, typ.BlockSize(), typ.BlockBytes())
		}
	}
}

func TestTypeBytes(t *testing.T) {
	for _, c := range []struct {
		typ  gguf.Type
		dims []int64
		want int64
		err  error
	}{
		{gguf.F32, nil, 4, nil},
		{gguf.F16, []int64{3, 5}, 30, nil},
		{gguf.Q8_0, []int64{64, 3, 2}, 408, nil},
		{gguf.MXFP4, []int64{2880, 2880, 128}, 2880 / 32 * 17 * 2880 * 128, nil},
		{gguf.NVFP4, []int64{64}, 36, nil},
		{gguf.Q4_K, []int64{128, 2}, 0, gguf.ErrDamaged}, // 256 elements, but a row is not a block
		{gguf.F32, []int64{4, 0}, 0, gguf.ErrDamaged},
		{gguf.F32, []int64{-1, -1}, 0, gguf.ErrDamaged},
		{gguf.F32, []int64{1 << 32, 1 << 32}, 0, gguf.ErrDamaged},
		{gguf.F32, []int64{1 << 31, 1 << 31}, 0, gguf.ErrDamaged}, // elements fit, bytes don't
		{gguf.I8, []int64{math.MaxInt64}, math.MaxInt64, nil},
		{4, []int64{32}, 0, gguf.ErrType},
		{208, []int64{32}, 0, gguf.ErrType},
	} {
		got, err := c.typ.Bytes(c.dims)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%v.Bytes(%v): got %d, %v, want %d, %v", c.typ, c.dims, got, err, c.want, c.err)
		}
	}
}
