//go:build !linux

package drive

import "unsafe"

// maxAlign is more than a direct read needs of an address.
const maxAlign = 64 << 10

// memory is a range of Go's heap, which does not move, at a multiple of maxAlign.
type memory struct{ bytes []byte }

func newMemory(n int) (*memory, error) {
	b := make([]byte, n+maxAlign)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (maxAlign - 1))
	b = b[skip:][:n:n]
	for i := 0; i < n; i += blockStep {
		b[i] = 1 // so that no read meets a page for the first time
	}
	return &memory{bytes: b}, nil
}

func (m *memory) take(n int) []byte { return m.bytes[:n] }

func (m *memory) close() error { return nil }
