package rawread

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const hugeBytes = 2 << 20

// allocate maps n bytes that start on a huge page and are advised to be huge pages.
func allocate(n int64) ([]byte, func() error, error) {
	whole := (n + hugeBytes - 1) / hugeBytes * hugeBytes
	m, err := unix.Mmap(-1, 0, int(whole+hugeBytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	body := m[-uintptr(unsafe.Pointer(unsafe.SliceData(m)))&(hugeBytes-1):]
	_ = unix.Madvise(body[:whole], unix.MADV_HUGEPAGE) // a kernel without them has small ones
	return body[:n], func() error { return os.NewSyscallError("munmap", unix.Munmap(m)) }, nil
}
