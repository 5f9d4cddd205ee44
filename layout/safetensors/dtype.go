package safetensors

import "math/bits"

// dtypeBits is how many bits an element of each dtype of the format takes.
var dtypeBits = map[string]uint64{
	"BOOL": 8, "U8": 8, "I8": 8,
	"U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
	"F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
	"F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
	"F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}

// DTypeBits is how many bits one element of a dtype takes, 0 if the dtype is
// not known here.
func DTypeBits(dtype string) int { return int(dtypeBits[dtype]) }

// sizeOf is the size in bytes of a tensor of a known dtype. It fails if the
// size overflows, or is no whole number of bytes.
func sizeOf(elemBits uint64, shape []int64) (size int64, ok bool) {
	n := elemBits
	for _, d := range shape {
		if d == 0 {
			return 0, true
		}
	}
	for _, d := range shape {
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 {
			return 0, false
		}
		n = lo
	}
	return int64(n / 8), n%8 == 0
}
