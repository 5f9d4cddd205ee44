package layout

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const hugeBytes = 2 << 20

// DirectMemory is n bytes for direct reads and writes, zeros that nothing has touched.
// They start on a multiple of align, a power of two up to MaxAlign, and lie outside of
// Go's heap and in huge pages where the system has them: drives are more than twice as
// fast there, at less processor time. free gives them back, once. The error is the
// system's refusal.
func DirectMemory(n, align int64) (memory []byte, free func() error, err error) {
	if align > hugeBytes {
		return nil, nil, fmt.Errorf("layout: memory aligned to %d, want up to %d", align, hugeBytes)
	}
	whole := alignUp(n, hugeBytes)
	m, err := unix.Mmap(-1, 0, int(whole+hugeBytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, nil, fmt.Errorf("layout: map %d bytes: %w", n, err)
	}
	body := m[-uintptr(unsafe.Pointer(unsafe.SliceData(m)))&(hugeBytes-1):]
	_ = unix.Madvise(body[:whole], unix.MADV_HUGEPAGE) // a kernel without them has small ones
	return body[:n:n], func() error {
		if err := unix.Munmap(m); err != nil {
			return fmt.Errorf("layout: unmap %d bytes: %w", n, err)
		}
		return nil
	}, nil
}
