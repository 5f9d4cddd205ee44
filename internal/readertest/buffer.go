package readertest

import "unsafe"

const largestAlign = 16 << 10

// aligned is n bytes at an address that keeps any alignment, none of them zero.
func aligned(n int) []byte {
	b := make([]byte, n+largestAlign)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (largestAlign - 1)
	b = b[skip : skip+n : skip+n]
	for i := range b {
		b[i] = 0xA5
	}
	return b
}
