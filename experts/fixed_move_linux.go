package experts

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"outrider/layout"
)

// Move makes the pages of an evicted expert those of another, at the other's
// address, as far as both have them; the rest goes back to the system. It waits
// as Take does. Where pages cannot be moved it gives back and takes.
//
//	evicted   │ huge │ huge │ huge │ tail ·│        · address space only
//	             │                    │
//	             ▼                    ▼
//	newcomer  │ huge │ tail··│  (two huge pages go back)
func (m *FixedMemory) Move(b []byte, id layout.ExpertID, bytes int64) ([]byte, error) {
	from := m.holder(b)
	if m.remap == nil || from == id || !m.shape.Contains(id) || !m.plans[from.Layer].moves || !m.plans[id.Layer].moves {
		m.Give(b)
		return m.Take(id, bytes)
	}
	// Waiting with b in hand is safe: who holds id's range evicted its expert
	// before this one's eviction, so that nobody waits in a circle.
	to, err := m.claim(id, bytes)
	if err != nil {
		m.Give(b)
		return nil, err
	}
	if m.locked {
		unlockPages(b)
	}
	err = m.pass(b, to)
	m.end(from, addressFree)
	if err != nil {
		// What did move stays until Close: another thread may have mapped
		// something into the hole by now, so that nothing may be done to it.
		m.end(id, addressLost)
		return nil, fmt.Errorf("%w: %w", lostError(id), err)
	}
	return m.lockLent(to)
}

func lostError(id layout.ExpertID) error {
	return fmt.Errorf("experts: fixed memory: the system ran out of memory and did not map the address of %v again; close and open anew", id)
}

// pass moves pages between two ranges. What of the old one has no place in the
// new one goes first, so that no more than one record is ever committed.
func (m *FixedMemory) pass(old, to []byte) error {
	was, is := int(prefix(int64(len(old)))), int(prefix(int64(len(to))))
	tail, keep := len(old)-was, len(to)-is
	if tail == 0 || keep == 0 {
		release(old[was:cap(old)])
		tail = 0
	} else if keep < tail {
		release(old[was+keep : len(old)])
	}
	release(old[min(was, is):was])
	var errs []error
	start := 0
	for _, cut := range m.cuts {
		if end := int(cut); end <= min(was, is) {
			errs = append(errs, m.passRun(old[start:end], to[start:end], unix.MADV_HUGEPAGE))
			start = end
		}
	}
	if tail > 0 { // the whole 2 MiB that it has for itself
		errs = append(errs, m.passRun(old[was:cap(old)], to[is:cap(to)], unix.MADV_NOHUGEPAGE))
	}
	return errors.Join(errs...)
}

// passRun moves the pages of one mapping. If the kernel refuses, they go back to
// the system, and the newcomer gets new ones as it is read. The error says that
// the new range is not mapped any more.
func (m *FixedMemory) passRun(old, to []byte, advice int) error {
	if m.remap(old, to) == nil {
		return nil
	}
	release(old)
	return m.remake(to, advice)
}

// movePages takes the pages of one range of addresses to another of the same
// length; the old one stays mapped, with no pages. What the kernel advises and
// locks goes with them.
func movePages(from, to []byte) error {
	n := uintptr(len(from))
	_, err := unix.MremapPtr(unsafe.Pointer(unsafe.SliceData(from)), n, unsafe.Pointer(unsafe.SliceData(to)), n,
		unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED|unix.MREMAP_DONTUNMAP)
	return err
}

// pagesMove tries whether this kernel has movePages.
func pagesMove() bool {
	b, err := unix.Mmap(-1, 0, 2*pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return false
	}
	from, to := b[:pageBytes], b[pageBytes:]
	from[0] = 1
	moved := movePages(from, to) == nil && to[0] == 1
	stayed := unix.Madvise(from, unix.MADV_DONTNEED) == nil // refused where nothing is mapped
	return unix.Munmap(b) == nil && moved && stayed
}

// mapAgain maps a range that a failed move may have left unmapped: the kernel
// clears the target before it looks whether it has what it needs. If it did not
// come to that, the range is still there, and that is told as EEXIST.
func mapAgain(b []byte, advice int) error {
	_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE|unix.MAP_FIXED_NOREPLACE)
	switch {
	case err == unix.EEXIST:
		return nil
	case err != nil:
		return err
	}
	_ = unix.Madvise(b, advice)
	return nil
}
