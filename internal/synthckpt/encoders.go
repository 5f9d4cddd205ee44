package synthckpt

import (
	"encoding/binary"
	"math"
)

func f16(at, exponent int) scale { return scale{at: at, exponent: exponent} }

// encoders has the types of both formats: those that share a name are the same.
// Places of scales are those of ggml's blocks; exponents make weights of about
// 0.05, as those of a small model are.
var encoders = map[string]encoder{
	"F64": float(8, func(b []byte, v float32) []byte {
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(v)))
	}),
	"F32": float(4, func(b []byte, v float32) []byte {
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}),
	"F16": float(2, func(b []byte, v float32) []byte {
		return binary.LittleEndian.AppendUint16(b, half(v))
	}),
	"BF16": float(2, func(b []byte, v float32) []byte {
		return binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(v)>>16))
	}),

	"I8": whole(1), "I16": whole(2), "I32": whole(4), "I64": whole(8),

	// E4M3 and E5M2 without the upper half of their exponents: no infinity, no NaN.
	"F8_E4M3": small(0xbf, 0x20, 0x07), "F8_E5M2": small(0xbf, 0x30, 0x07),
	// E8M0 counts powers of two from 127; U8 is packed values, or such a scale.
	"F8_E8M0": small(0x07, 119, 0x03), "U8": small(0xff, 119, 0x03),
	"BOOL": small(0x01, 0, 0x01),

	"Q4_0": quantised(18, f16(0, -7)),
	"Q4_1": quantised(20, f16(0, -7), scale{at: 2, exponent: -4, negative: true}),
	"Q5_0": quantised(22, f16(0, -8)),
	"Q5_1": quantised(24, f16(0, -8), scale{at: 2, exponent: -4, negative: true}),
	"Q8_0": quantised(34, f16(0, -11)),
	"Q2_K": quantised(84, f16(80, -8), f16(82, -7)),
	"Q3_K": quantised(110, f16(108, -9)),
	"Q4_K": quantised(144, f16(0, -13), f16(2, -10)),
	"Q5_K": quantised(176, f16(0, -14), f16(2, -10)),
	"Q6_K": quantised(210, f16(208, -14)),

	"IQ2_XXS": quantised(66, f16(0, -9)), "IQ2_XS": quantised(74, f16(0, -9)), "IQ2_S": quantised(82, f16(0, -9)),
	"IQ3_XXS": quantised(98, f16(0, -11)), "IQ3_S": quantised(110, f16(0, -11)),
	"IQ1_S":  quantised(50, f16(0, -8)),
	"IQ4_NL": quantised(18, f16(0, -11)), "IQ4_XS": quantised(136, f16(0, -14)),
	"TQ1_0": quantised(54, f16(52, -5)), "TQ2_0": quantised(66, f16(64, -5)),

	"MXFP4": quantised(17, scale{at: 0, small: 121}),
	"NVFP4": quantised(36, scale{at: 0, small: 0x0c}, scale{at: 1, small: 0x0c}, scale{at: 2, small: 0x0c}, scale{at: 3, small: 0x0c}),
	"Q1_0":  quantised(18, f16(0, -5)), "Q2_0": quantised(18, f16(0, -5)),
}
