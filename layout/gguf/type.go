package gguf

import (
	"fmt"
	"math"
	"math/bits"
)

// Type is the number that GGUF files give a tensor's element type.
type Type uint32

// The types of ggml, as of llama.cpp in November 2026. For withdrawn numbers see
// withdrawn.
const (
	F32     Type = 0
	F16     Type = 1
	Q4_0    Type = 2
	Q4_1    Type = 3
	Q5_0    Type = 6
	Q5_1    Type = 7
	Q8_0    Type = 8
	Q8_1    Type = 9
	Q2_K    Type = 10
	Q3_K    Type = 11
	Q4_K    Type = 12
	Q5_K    Type = 13
	Q6_K    Type = 14
	Q8_K    Type = 15
	IQ2_XXS Type = 16
	IQ2_XS  Type = 17
	IQ3_XXS Type = 18
	IQ1_S   Type = 19
	IQ4_NL  Type = 20
	IQ3_S   Type = 21
	IQ2_S   Type = 22
	IQ4_XS  Type = 23
	I8      Type = 24
	I16     Type = 25
	I32     Type = 26
	I64     Type = 27
	F64     Type = 28
	IQ1_M   Type = 29
	BF16    Type = 30
	TQ1_0   Type = 34
	TQ2_0   Type = 35
	MXFP4   Type = 39
	NVFP4   Type = 40
	Q1_0    Type = 41
	Q2_0    Type = 42
)

// typeInfo holds a type's name and how many bytes a block of how many elements takes.
type typeInfo struct {
	name         string
	block, bytes int
}

var types = [...]typeInfo{
	F32: {"F32", 1, 4}, F16: {"F16", 1, 2}, BF16: {"BF16", 1, 2}, F64: {"F64", 1, 8},
	I8: {"I8", 1, 1}, I16: {"I16", 1, 2}, I32: {"I32", 1, 4}, I64: {"I64", 1, 8},
	Q4_0: {"Q4_0", 32, 18}, Q4_1: {"Q4_1", 32, 20}, Q5_0: {"Q5_0", 32, 22}, Q5_1: {"Q5_1", 32, 24},
	Q8_0: {"Q8_0", 32, 34}, Q8_1: {"Q8_1", 32, 36},
	Q2_K: {"Q2_K", 256, 84}, Q3_K: {"Q3_K", 256, 110}, Q4_K: {"Q4_K", 256, 144},
	Q5_K: {"Q5_K", 256, 176}, Q6_K: {"Q6_K", 256, 210}, Q8_K: {"Q8_K", 256, 292},
	IQ1_S: {"IQ1_S", 256, 50}, IQ1_M: {"IQ1_M", 256, 56},
	IQ2_XXS: {"IQ2_XXS", 256, 66}, IQ2_XS: {"IQ2_XS", 256, 74}, IQ2_S: {"IQ2_S", 256, 82},
	IQ3_XXS: {"IQ3_XXS", 256, 98}, IQ3_S: {"IQ3_S", 256, 110},
	IQ4_NL: {"IQ4_NL", 32, 18}, IQ4_XS: {"IQ4_XS", 256, 136},
	TQ1_0: {"TQ1_0", 256, 54}, TQ2_0: {"TQ2_0", 256, 66},
	MXFP4: {"MXFP4", 32, 17}, NVFP4: {"NVFP4", 64, 36}, Q1_0: {"Q1_0", 128, 18}, Q2_0: {"Q2_0", 64, 18},
}

// withdrawn are the names of types that ggml once had, and what a model of that
// type is converted to today.
var withdrawn = map[Type][2]string{
	4: {"Q4_2", "Q4_0"}, 5: {"Q4_3", "Q4_1"},
	31: {"Q4_0_4_4", "Q4_0"}, 32: {"Q4_0_4_8", "Q4_0"}, 33: {"Q4_0_8_8", "Q4_0"},
	36: {"IQ4_NL_4_4", "IQ4_NL"}, 37: {"IQ4_NL_4_8", "IQ4_NL"}, 38: {"IQ4_NL_8_8", "IQ4_NL"},
}

// unknown says why a type has no size here.
func (t Type) unknown() error {
	if w, ok := withdrawn[t]; ok {
		return fmt.Errorf("%w: number %d was %s, which ggml has withdrawn; get the model as %s", ErrType, uint32(t), w[0], w[1])
	}
	return fmt.Errorf("%w: number %d is of a newer llama.cpp, or of another engine; get the model in a type up to %v (%d)", ErrType, uint32(t), Q2_0, uint32(Q2_0))
}

// bytewise reports whether blocks hold single bytes only, which are the same in
// either byte order.
func (t Type) bytewise() bool { return t == I8 || t == MXFP4 || t == NVFP4 }

func (t Type) info() typeInfo {
	if uint64(t) >= uint64(len(types)) {
		return typeInfo{}
	}
	return types[t]
}

// Known reports whether the type's block size is known. For a type that is
// not, BlockSize and BlockBytes are 0.
func (t Type) Known() bool { return t.info().block != 0 }

// String is the type's name as ggml's tools print it: "Q4_K"; "type 99" if unknown.
func (t Type) String() string {
	if !t.Known() {
		return fmt.Sprintf("type %d", uint32(t))
	}
	return t.info().name
}

// BlockSize is how many elements share one block; 1 for plain types.
func (t Type) BlockSize() int { return t.info().block }

// BlockBytes is the size of one block in bytes.
func (t Type) BlockBytes() int { return t.info().bytes }

// ParseType is the inverse of String.
func ParseType(name string) (Type, bool) {
	for t := range types {
		if types[t].block != 0 && types[t].name == name {
			return Type(t), true
		}
	}
	return 0, false
}

// Bytes is the size in bytes of a tensor of these dimensions, fastest first.
// It fails for an unknown type, a dimension under 1, a first dimension that is
// no multiple of the block size, and a size beyond 63 bits.
func (t Type) Bytes(dims []int64) (int64, error) {
	if !t.Known() {
		return 0, t.unknown()
	}
	count := uint64(1)
	for i, d := range dims {
		if d < 1 {
			return 0, fmt.Errorf("%w: dimension %d is %d, want at least 1", ErrDamaged, i, d)
		}
		hi, lo := bits.Mul64(count, uint64(d))
		if hi != 0 || lo > math.MaxInt64 {
			return 0, fmt.Errorf("%w: dimensions %v overflow 63 bits", ErrDamaged, dims)
		}
		count = lo
	}
	row := int64(1)
	if len(dims) > 0 {
		row = dims[0]
	}
	if row%int64(t.BlockSize()) != 0 {
		return 0, fmt.Errorf("%w: rows of %d elements are no multiple of %v's block of %d", ErrDamaged, row, t, t.BlockSize())
	}
	hi, lo := bits.Mul64(count/uint64(t.BlockSize()), uint64(t.BlockBytes()))
	if hi != 0 || lo > math.MaxInt64 {
		return 0, fmt.Errorf("%w: dimensions %v of %v overflow 63 bits of bytes", ErrDamaged, dims, t)
	}
	return int64(lo), nil
}
