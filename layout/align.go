package layout

import (
	"hash/crc32"
	"unsafe"
)

// castagnoli is the table of every checksum in a store. It is never changed.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// alignUp rounds n up to a multiple of a, a power of two. The caller keeps n
// below the limits of the format, so that the sum cannot overflow.
func alignUp(n, a int64) int64 { return (n + a - 1) &^ (a - 1) }

func alignDown(n, a int64) int64 { return n &^ (a - 1) }

func isPowerOfTwo(n int64) bool { return n > 0 && n&(n-1) == 0 }

// span is the one alignment that serves for addresses, offsets and lengths:
// the larger of the two, 1 when buffered.
func (a Alignment) span() int64 { return int64(max(a.Memory, a.Offset, 1)) }

// check reports whether a read of p at off keeps the alignment.
func (a Alignment) check(p []byte, off int64) bool {
	if a == (Alignment{}) || len(p) == 0 {
		return true
	}
	mem, block := int64(max(a.Memory, 1)), int64(max(a.Offset, 1))
	address := int64(uintptr(unsafe.Pointer(unsafe.SliceData(p))) & uintptr(mem-1))
	return address == 0 && off&(block-1) == 0 && int64(len(p))&(block-1) == 0
}

// alignedBuffer is n bytes whose address is a multiple of align. Go's heap does
// not move, so the address stays.
func alignedBuffer(n, align int64) []byte {
	b := make([]byte, n+align)
	skip := -int64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (align - 1)
	return b[skip : skip+n : skip+n]
}
