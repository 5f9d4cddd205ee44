package layout

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const hugeBytes = 2 << 20

// mapMemory maps n bytes that start on a huge page and are advised to be huge
// pages. It returns nil where the system refuses.
func mapMemory(n int64) (memory []byte, free func() error) {
	whole := alignUp(n, hugeBytes)
	m, err := unix.Mmap(-1, 0, int(whole+hugeBytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, nil
	}
	body := m[-uintptr(unsafe.Pointer(unsafe.SliceData(m)))&(hugeBytes-1):]
	_ = unix.Madvise(body[:whole], unix.MADV_HUGEPAGE) // a kernel without them has small ones
	return body[:n], func() error { return unix.Munmap(m) }
}
