package dequant

import (
	"encoding/binary"
	"math"
)

// F16 converts an IEEE 754 half to float32, exactly. NaNs stay NaNs and become quiet.
func F16(h uint16) float32 {
	// Placed 13 bits up, a half is a float32 whose exponent is 112 too small.
	const (
		shiftedExp = 0x7c00 << 13
		rebias     = (127 - 15) << 23
	)
	bits := uint32(h&0x7fff) << 13
	exp := bits & shiftedExp
	bits += rebias
	switch exp {
	case shiftedExp: // infinity and NaN keep the largest exponent
		bits += (128 - 16) << 23
		if bits&0x007fffff != 0 {
			bits |= 0x00400000
		}
	case 0: // subnormal: let the subtraction normalise it
		bits += 1 << 23
		bits = math.Float32bits(math.Float32frombits(bits) - math.Float32frombits(113<<23))
	}
	return math.Float32frombits(bits | uint32(h&0x8000)<<16)
}

// BF16 converts a bfloat16 to float32, exactly.
func BF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// e8m0Half is half of 2^(e-127), exactly: what ggml scales MXFP4 by, since its
// table of values is doubled.
func e8m0Half(e uint8) float32 {
	if e < 2 {
		return math.Float32frombits(0x00200000 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

func f16At(b []byte) float32 { return F16(binary.LittleEndian.Uint16(b)) }

func rowF32(src []byte, dst []float32) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func rowF16(src []byte, dst []float32) {
	for i := range dst {
		dst[i] = F16(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func rowBF16(src []byte, dst []float32) {
	for i := range dst {
		dst[i] = BF16(binary.LittleEndian.Uint16(src[2*i:]))
	}
}
