package safetensors_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"outrider/layout/safetensors"
)

// Bits of an element of each dtype, as the format's README has them.
var dtypeBits = map[string]int{
	"BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
	"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
	"F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
}

// A tensor of every dtype has exactly the bytes that its shape tells: one more or
// fewer is damage. One of an unknown dtype has what its offsets tell.
func TestDTypes(t *testing.T) {
	entry := func(dtype string, size int) string {
		return fmt.Sprintf(`{"a":{"dtype":%q,"shape":[3,8],"data_offsets":[0,%d]}}`, dtype, size)
	}
	for dtype, bits := range dtypeBits {
		if got := safetensors.DTypeBits(dtype); got != bits {
			t.Errorf("DTypeBits(%q) = %d, want %d", dtype, got, bits)
		}
		right := 3 * 8 * bits / 8
		for _, size := range []int{right, right - 1, right + 1} {
			f, err := safetensors.Open(oneFile(entry(dtype, size), size), "m.safetensors")
			switch {
			case size == right && err != nil:
				t.Errorf("%s of %d bytes: %v", dtype, size, err)
			case size == right && f.Tensors()[0].Bytes != int64(right):
				t.Errorf("%s: got %d bytes, want %d", dtype, f.Tensors()[0].Bytes, right)
			case size != right && (!errors.Is(err, safetensors.ErrDamaged) || !strings.Contains(err.Error(), "does not fit "+dtype)):
				t.Errorf("%s of %d bytes, want %d: got %v", dtype, size, right, err)
			}
		}
	}
	for _, size := range []int{0, 1, 77} {
		f, err := safetensors.Open(oneFile(entry("F5_NEW", size), size), "m.safetensors")
		if err != nil || f.Tensors()[0].Bytes != int64(size) || safetensors.DTypeBits("F5_NEW") != 0 {
			t.Errorf("unknown dtype of %d bytes: got %v", size, err)
		}
	}
}
