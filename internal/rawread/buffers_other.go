//go:build !linux

package rawread

import "unsafe"

const largestAlign = 64 << 10 // more than any drive asks for

// allocate takes n bytes from Go's heap, which does not move.
func allocate(n int64) ([]byte, func() error, error) {
	b := make([]byte, n+largestAlign)
	skip := -int64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (largestAlign - 1)
	return b[skip:][:n:n], nil, nil
}
