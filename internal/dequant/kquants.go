package dequant

// The K-quants: super-blocks of 256 elements whose sub-blocks have quantised
// scales of their own.

// scaleMin unpacks scale and minimum j (0 to 7), 6 bits each, from the 12 bytes
// that hold all of them.
func scaleMin(j int, s *[12]byte) (scale, least uint8) {
	if j < 4 {
		return s[j] & 63, s[j+4] & 63
	}
	return s[j+4]&15 | s[j-4]>>6<<4, s[j+4]>>4 | s[j]>>6<<4
}

func rowQ4K(src []byte, dst []float32) {
	for len(dst) >= 256 && len(src) >= 144 {
		d, dmin := f16At(src), f16At(src[2:])
		scales := (*[12]byte)(src[4:])
		for j := range 4 {
			q := (*[32]byte)(src[16+32*j:])
			y := (*[64]float32)(dst[64*j:])
			s1, l1 := scaleMin(2*j, scales)
			s2, l2 := scaleMin(2*j+1, scales)
			d1, m1 := d*float32(s1), dmin*float32(l1)
			d2, m2 := d*float32(s2), dmin*float32(l2)
			for i, b := range q {
				y[i] = float32(d1*float32(b&15)) - m1
				y[i+32] = float32(d2*float32(b>>4)) - m2
			}
		}
		src, dst = src[144:], dst[256:]
	}
}

func rowQ5K(src []byte, dst []float32) {
	for len(dst) >= 256 && len(src) >= 176 {
		d, dmin := f16At(src), f16At(src[2:])
		scales := (*[12]byte)(src[4:])
		high := (*[32]byte)(src[16:])
		for j := range 4 {
			q := (*[32]byte)(src[48+32*j:])
			y := (*[64]float32)(dst[64*j:])
			s1, l1 := scaleMin(2*j, scales)
			s2, l2 := scaleMin(2*j+1, scales)
			d1, m1 := d*float32(s1), dmin*float32(l1)
			d2, m2 := d*float32(s2), dmin*float32(l2)
			for i, b := range q {
				h := high[i] >> (2 * j)
				y[i] = float32(d1*float32(b&15|h&1<<4)) - m1
				y[i+32] = float32(d2*float32(b>>4|h&2<<3)) - m2
			}
		}
		src, dst = src[176:], dst[256:]
	}
}

func rowQ6K(src []byte, dst []float32) {
	for len(dst) >= 256 && len(src) >= 210 {
		d := f16At(src[208:])
		for half := range 2 {
			low := (*[64]byte)(src[64*half:])
			high := (*[32]byte)(src[128+32*half:])
			var s [8]float32
			for i := range s {
				s[i] = d * float32(int8(src[192+8*half+i]))
			}
			y := (*[128]float32)(dst[128*half:])
			for i, h := range high {
				k := i / 16
				y[i] = s[k] * float32(int32(low[i]&15|h&3<<4)-32)
				y[i+32] = s[k+2] * float32(int32(low[i+32]&15|h>>2&3<<4)-32)
				y[i+64] = s[k+4] * float32(int32(low[i]>>4|h>>4&3<<4)-32)
				y[i+96] = s[k+6] * float32(int32(low[i+32]>>4|h>>6<<4)-32)
			}
		}
		src, dst = src[210:], dst[256:]
	}
}
