package drive

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const hugeBytes = 2 << 20

// memory is a range outside Go's heap that starts on 2 MiB, in huge pages where
// the system has them: a read into scattered small pages needs a segment for
// each of them, which drives are slower with.
type memory struct {
	mapped  []byte
	bytes   []byte
	touched int
}

func newMemory(n int) (*memory, error) {
	mapped, err := unix.Mmap(-1, 0, n+hugeBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("drive: map %d bytes of buffers: %w", n, err)
	}
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(mapped))) & (hugeBytes - 1))
	m := &memory{mapped: mapped, bytes: mapped[skip:][:n:n]}
	_ = unix.Madvise(m.bytes, unix.MADV_HUGEPAGE) // advice: a kernel without them has small ones
	return m, nil
}

// take returns the first n bytes, all of them backed by pages.
func (m *memory) take(n int) []byte {
	for ; m.touched < n; m.touched += blockStep {
		m.bytes[m.touched] = 1
	}
	return m.bytes[:n]
}

func (m *memory) close() error {
	if err := unix.Munmap(m.mapped); err != nil {
		return fmt.Errorf("drive: unmap buffers: %w", err)
	}
	return nil
}
