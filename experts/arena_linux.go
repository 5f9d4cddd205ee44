package experts

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"outrider/layout"
)

var _ Memory = (*arena)(nil)

// arena lends slots of one reserved range of address space that starts on
// 2 MiB. Reserving costs nothing: a page is committed when it is first written,
// and given back with MADV_DONTNEED. If the budget is raised beyond what the
// range was cut for, further segments are reserved.
//
// The length of a slot on the free stack tells how many bytes of it were lent
// last, and so how its pages are advised; 0 for one never lent.
type arena struct {
	plan   slotPlan
	huge   bool
	locked bool // slots are locked while they are lent
	free   freeSlots

	mu       sync.Mutex // guards segments
	segments [][]byte
	first    []byte // the slots of the first segment
}

// newMemory reserves an arena for layers with these slot bytes.
func newMemory(slotBytes []int64, budget int64, experts int) (Memory, error) {
	a := &arena{plan: planSlots(slotBytes, budget, experts)}
	a.huge = a.plan.pages != smallPages && hugePagesAllowed()
	if err := a.grow(a.plan.slots); err != nil {
		return nil, err
	}
	return a, nil
}

// hugePagesAllowed reads the system's switch for transparent huge pages.
func hugePagesAllowed() bool {
	mode, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	return err == nil && !bytes.Contains(mode, []byte("[never]"))
}

// grow reserves one more segment.
func (a *arena) grow(slots int) error {
	if int64(slots) > (1<<46)/a.plan.stride {
		return fmt.Errorf("experts: arena: %d slots of %d bytes exceed the address space; lower the budget", slots, a.plan.stride)
	}
	size := int(int64(slots) * a.plan.stride)
	seg, err := unix.Mmap(-1, 0, size+hugeBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("experts: arena: reserve %d bytes of address space: %w; lower the budget or lift the address space limit", size, err)
	}
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(seg))) & (hugeBytes - 1))
	body := seg[skip:][:size:size]
	a.mu.Lock()
	a.segments = append(a.segments, seg)
	if a.first == nil {
		a.first = body
	}
	a.mu.Unlock()
	a.advise(seg, unix.MADV_NOHUGEPAGE)
	if a.plan.pages == hugeDense {
		a.advise(body[:size/hugeBytes*hugeBytes], unix.MADV_HUGEPAGE)
	}
	stride := int(a.plan.stride)
	stack := make([][]byte, 0, slots)
	for i := slots - 1; i >= 0; i-- { // so that the lowest is lent first
		stack = append(stack, body[i*stride:][:0:stride])
	}
	a.free.push(stack...)
	return nil
}

// advise says how pages shall be; a kernel without huge pages refuses, and
// then they are small ones.
func (a *arena) advise(b []byte, advice int) {
	if len(b) == 0 || (!a.huge && advice == unix.MADV_HUGEPAGE) {
		return
	}
	_ = unix.Madvise(b, advice)
}

func (a *arena) Take(_ layout.ExpertID, n int64) ([]byte, error) {
	if n < 1 || n > a.plan.stride {
		return nil, fmt.Errorf("experts: arena: cannot lend %d bytes of a slot of %d", n, a.plan.stride)
	}
	for {
		if b := a.free.pop(); b != nil {
			return a.lockFrom(a.retarget(b, n), 0)
		}
		if err := a.grow(min(a.plan.slots, growSlots)); err != nil {
			return nil, err
		}
	}
}

// growSlots is how many slots a raised budget reserves at a time.
const growSlots = 64

func (a *arena) Move(b []byte, _ layout.ExpertID, n int64) ([]byte, error) {
	if n < 1 || n > int64(cap(b)) {
		a.Give(b)
		return nil, fmt.Errorf("experts: arena: cannot lend %d bytes of a slot of %d", n, a.plan.stride)
	}
	old := int64(len(b))
	if old == n {
		return b, nil
	}
	// Where the page size changes, pages go as a whole: a huge page of which
	// only a part is given back would stay in memory.
	from := min(old, n)
	if a.plan.pages == hugePrefix && prefix(old) != prefix(n) {
		from = min(prefix(old), prefix(n))
	}
	if from < old {
		a.release(b[from:old])
	}
	return a.lockFrom(a.retarget(b, n), from)
}

// lockFrom locks what comes after from, which is locked already.
func (a *arena) lockFrom(b []byte, from int64) ([]byte, error) {
	if !a.locked || from >= int64(len(b)) {
		return b, nil
	}
	if err := lockPages(b[from:]); err != nil {
		a.Give(b)
		return nil, err
	}
	return b, nil
}

func (a *arena) lock() { a.locked = true }

// release unlocks pages and gives them back to the system.
func (a *arena) release(b []byte) {
	if a.locked {
		unlockPages(b)
	}
	release(b)
}

func (a *arena) Give(b []byte) {
	a.release(b[:cap(b)])
	if a.plan.pages == hugeDense {
		// Keeps the kernel from filling the hole with a huge page again.
		a.advise(b[:cap(b)], unix.MADV_NOHUGEPAGE)
	}
	a.free.push(b)
}

// retarget sets the advice and the length for a record of n bytes.
func (a *arena) retarget(b []byte, n int64) []byte {
	old := int64(len(b))
	b = b[:n]
	switch a.plan.pages {
	case hugeDense:
		if old > 0 {
			a.advise(b[:cap(b)], unix.MADV_HUGEPAGE)
		}
	case hugePrefix:
		was, is := prefix(old), prefix(n)
		if is > was {
			a.advise(b[:cap(b)][was:is], unix.MADV_HUGEPAGE)
		} else if is < was {
			a.advise(b[:cap(b)][is:was], unix.MADV_NOHUGEPAGE)
		}
	}
	return b
}

// prefix is how much of a record is in whole huge pages.
func prefix(n int64) int64 { return n / hugeBytes * hugeBytes }

// release gives the pages of a page-aligned range back to the system. Those
// that are still locked, by mlockall say, need another call, which a kernel
// before 5.18 does not have: there they stay committed.
func release(b []byte) {
	if len(b) > 0 && unix.Madvise(b, unix.MADV_DONTNEED) != nil {
		_ = unix.Madvise(b, unix.MADV_DONTNEED_LOCKED)
	}
}

func (a *arena) slots() ([]byte, int64) { return a.first, a.plan.stride }

func (a *arena) HugePages() bool { return a.huge }
func (a *arena) Fixed() bool     { return false }

func (a *arena) Close() error {
	a.mu.Lock()
	segments := a.segments
	a.segments = nil
	a.mu.Unlock()
	return unmap(segments)
}

func unmap(segments [][]byte) error {
	var errs []error
	for _, seg := range segments {
		if err := unix.Munmap(seg); err != nil {
			errs = append(errs, fmt.Errorf("experts: unmap: %w", err))
		}
	}
	return errors.Join(errs...)
}
