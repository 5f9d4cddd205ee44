package widen

import (
	"encoding/binary"

	"outrider/layout/gguf"
)

// divisor turns one block of a tensor type into the given copy's share of it: dst
// has the bytes of src and gets those that change. It reports whether the shares
// of the copies differ.
type divisor func(dst, src []byte, shift uint, copy uint64) (uneven bool)

// divisors are the types whose blocks can be divided. Left out are those that no
// file stores (Q8_1, Q8_K) and integers.
var divisors = map[gguf.Type]divisor{
	gguf.F32:  float32s.share32,
	gguf.F64:  float64s.share64,
	gguf.F16:  float16.share16,
	gguf.BF16: bfloat16.share16,

	// A float16 scale, and a minimum beside it where the type has one.
	gguf.Q4_0: halves(0), gguf.Q4_1: halves(0, 2), gguf.Q5_0: halves(0), gguf.Q5_1: halves(0, 2), gguf.Q8_0: halves(0),
	gguf.Q2_K: halves(80, 82), gguf.Q3_K: halves(108), gguf.Q4_K: halves(0, 2), gguf.Q5_K: halves(0, 2), gguf.Q6_K: halves(208),
	gguf.IQ1_S: halves(0), gguf.IQ2_XXS: halves(0), gguf.IQ2_XS: halves(0), gguf.IQ2_S: halves(0),
	gguf.IQ3_XXS: halves(0), gguf.IQ3_S: halves(0), gguf.IQ4_NL: halves(0), gguf.IQ4_XS: halves(0),
	gguf.TQ1_0: halves(52), gguf.TQ2_0: halves(64), gguf.Q1_0: halves(0), gguf.Q2_0: halves(0),

	gguf.IQ1_M: divideIQ1M,
	gguf.MXFP4: divideMXFP4,
	gguf.NVFP4: divideNVFP4,
}

// halves divides the float16 numbers at these offsets of a block.
func halves(offsets ...int) divisor {
	return func(dst, src []byte, shift uint, copy uint64) bool {
		uneven := false
		for _, at := range offsets {
			uneven = float16.share16(dst[at:], src[at:], shift, copy) || uneven
		}
		return uneven
	}
}

// divideIQ1M: the float16 scale lies in the upper four bits of four words.
func divideIQ1M(dst, src []byte, shift uint, copy uint64) bool {
	const at = 48
	var scale uint64
	for i := range 4 {
		word := binary.LittleEndian.Uint16(src[at+2*i:])
		scale |= uint64(word>>12) << (4 * i)
	}
	part, uneven := float16.share(scale, shift, copy)
	for i := range 4 {
		word := binary.LittleEndian.Uint16(src[at+2*i:])&0x0fff | uint16(part>>(4*i))<<12
		binary.LittleEndian.PutUint16(dst[at+2*i:], word)
	}
	return uneven
}

// divideMXFP4: the scale is a power of two by its exponent alone. One that is too
// small to divide goes to the first copy whole, and the others are zero.
func divideMXFP4(dst, src []byte, shift uint, copy uint64) bool {
	if uint(src[0]) >= shift {
		dst[0] = src[0] - byte(shift)
		return false
	}
	zero := true
	for _, pair := range src[1:] {
		zero = zero && pair&0x77 == 0 // without the signs
	}
	if zero {
		return false
	}
	if copy > 0 {
		clear(dst)
	}
	return true
}

// divideNVFP4: four scales of three fraction bits, one for 16 elements each.
func divideNVFP4(dst, src []byte, shift uint, copy uint64) bool {
	uneven := false
	for i := range 4 {
		part, differs := ue4m3.share(uint64(src[i]), shift, copy)
		dst[i] = byte(part)
		uneven = uneven || differs
	}
	return uneven
}
