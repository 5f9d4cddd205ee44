package prefetcher

import (
	"bytes"
	"unsafe"
)

// canaryBytes is how much of each end of a block carries a canary before it is
// read. Some file systems report success without having touched the buffer; a
// checkpoint opened in place has no checksum that would tell. The canary costs 32
// bytes a block. It finds a read that did not reach the end or the beginning of
// its block, not a hole in the middle, which only checksums find.
const canaryBytes = 16

type canary [canaryBytes]byte

// inverse is for the second try, so that data that happen to equal the canary
// are not taken for a silent read twice.
func (c canary) inverse() canary {
	for i := range c {
		c[i] = ^c[i]
	}
	return c
}

// set writes the canary to both ends of b, and reports whether b is large enough
// to carry two.
func (c canary) set(b []byte) bool {
	if len(b) < 2*canaryBytes {
		return false
	}
	copy(b, c[:])
	copy(b[len(b)-canaryBytes:], c[:])
	return true
}

// alive reports whether either end still carries the canary.
func (c canary) alive(b []byte) bool {
	return bytes.Equal(b[:canaryBytes], c[:]) || bytes.Equal(b[len(b)-canaryBytes:], c[:])
}

// adjoin reports whether b begins where a ends, in one allocation.
func adjoin(a, b []byte) bool {
	return len(a) > 0 && len(b) > 0 && cap(a)-len(a) >= len(b) && unsafe.SliceData(a[len(a):cap(a)]) == unsafe.SliceData(b)
}

// wasteAlign is what any device asks of a buffer's address.
const wasteAlign = 64 << 10

// grown is a buffer of at least n bytes, aligned for any device.
func grown(b []byte, n int64) []byte {
	if int64(len(b)) >= n {
		return b
	}
	b = make([]byte, n+wasteAlign)
	skip := -int64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (wasteAlign - 1)
	return b[skip : skip+n : skip+n]
}
