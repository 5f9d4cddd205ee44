package dequant

import "encoding/binary"

// The formats with blocks of 32. Nibbles: element j is in the low half of byte
// j, element j+16 in the high half.

func rowQ8_0(src []byte, dst []float32) {
	for len(dst) >= 32 && len(src) >= 34 {
		d := f16At(src)
		q := (*[32]byte)(src[2:])
		y := (*[32]float32)(dst)
		for j := range q {
			y[j] = float32(int8(q[j])) * d
		}
		src, dst = src[34:], dst[32:]
	}
}

func rowQ4_0(src []byte, dst []float32) {
	for len(dst) >= 32 && len(src) >= 18 {
		d := f16At(src)
		q := (*[16]byte)(src[2:])
		y := (*[32]float32)(dst)
		for j, b := range q {
			y[j] = float32(int32(b&15)-8) * d
			y[j+16] = float32(int32(b>>4)-8) * d
		}
		src, dst = src[18:], dst[32:]
	}
}

func rowQ4_1(src []byte, dst []float32) {
	for len(dst) >= 32 && len(src) >= 20 {
		d, m := f16At(src), f16At(src[2:])
		q := (*[16]byte)(src[4:])
		y := (*[32]float32)(dst)
		for j, b := range q {
			y[j] = float32(float32(b&15)*d) + m
			y[j+16] = float32(float32(b>>4)*d) + m
		}
		src, dst = src[20:], dst[32:]
	}
}

// In the 5-bit formats bit j of high is the fifth bit of element j.

func rowQ5_0(src []byte, dst []float32) {
	for len(dst) >= 32 && len(src) >= 22 {
		d := f16At(src)
		high := binary.LittleEndian.Uint32(src[2:])
		q := (*[16]byte)(src[6:])
		y := (*[32]float32)(dst)
		for j, b := range q {
			lo := uint32(b&15) | high<<4&16
			hi := uint32(b>>4) | high>>12&16
			y[j] = float32(int32(lo)-16) * d
			y[j+16] = float32(int32(hi)-16) * d
			high >>= 1
		}
		src, dst = src[22:], dst[32:]
	}
}

func rowQ5_1(src []byte, dst []float32) {
	for len(dst) >= 32 && len(src) >= 24 {
		d, m := f16At(src), f16At(src[2:])
		high := binary.LittleEndian.Uint32(src[4:])
		q := (*[16]byte)(src[8:])
		y := (*[32]float32)(dst)
		for j, b := range q {
			lo := uint32(b&15) | high<<4&16
			hi := uint32(b>>4) | high>>12&16
			y[j] = float32(float32(int32(lo))*d) + m
			y[j+16] = float32(float32(int32(hi))*d) + m
			high >>= 1
		}
		src, dst = src[24:], dst[32:]
	}
}

// mxfp4 holds the doubled values of the 4-bit float E2M1. Minus zero is zero,
// as in ggml's integer table.
var mxfp4 = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

func rowMXFP4(src []byte, dst []float32) {
	for len(dst) >= 32 && len(src) >= 17 {
		d := e8m0Half(src[0])
		var scaled [16]float32
		for i, v := range mxfp4 {
			scaled[i] = v * d
		}
		q := (*[16]byte)(src[1:])
		y := (*[32]float32)(dst)
		for j, b := range q {
			y[j] = scaled[b&15]
			y[j+16] = scaled[b>>4]
		}
		src, dst = src[17:], dst[32:]
	}
}
