package experts

import (
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"outrider/layout"
)

var _ Stacked = (*FixedMemory)(nil)

// FixedMemory gives each expert one address for the whole run: the records of
// a layer lie in one range of address space, in the order of their indices and
// at the same distance (StackStride), and so each projection is a stacked tensor
// with that distance as its stride.
//
// Records of 512 KiB and more start on 2 MiB. What they have in whole 2 MiB is in
// huge pages, and their pages move from the expert that is evicted to the one
// that takes its place (mremap of Linux 5.7): nothing is freed, zeroed or
// committed anew. Smaller records lie one after the other, and so do those for
// which the kernel has too few mappings (vm.max_map_count, of which half is used);
// their pages go back to the system with each eviction.
//
// Pass it as Options.Memory with the same shape and slot bytes. It exists on
// Linux only.
type FixedMemory struct {
	shape  layout.Shape
	bytes  []int64
	plans  []stackPlan // by layer
	cuts   []int64
	stacks [][]byte // by layer
	maps   [][]byte
	huge   bool
	locked bool // ranges are locked while they are lent
	// remap is movePages, and nil where the kernel cannot; remake is mapAgain.
	remap  func(from, to []byte) error
	remake func(b []byte, advice int) error

	mu    sync.Mutex
	gone  sync.Cond      // on mu: a buffer was given back
	state []addressState // by ordinal
}

type addressState uint8

const (
	addressFree addressState = iota
	addressLent
	addressLost // the kernel unmapped it and refused to map it again
)

// NewFixedMemory reserves address space for every expert; slotBytes is that of
// Options.Bytes.
func NewFixedMemory(shape layout.Shape, slotBytes []int64) (*FixedMemory, error) {
	return newFixedMemory(shape, slotBytes, mappingsToSpend())
}

func newFixedMemory(shape layout.Shape, slotBytes []int64, mappings int64) (*FixedMemory, error) {
	o := Options{Shape: shape, Bytes: slotBytes}
	if err := o.validate(); err != nil {
		return nil, err
	}
	m := &FixedMemory{
		shape: shape, bytes: slotBytes, state: make([]addressState, shape.Count()),
		plans: planStacks(slotBytes, shape.Experts, mappings), cuts: planCuts(slotBytes),
		remake: mapAgain,
	}
	m.gone.L = &m.mu
	if pagesMove() {
		m.remap = movePages
	}
	huge := hugePagesAllowed()
	for l, b := range slotBytes {
		if err := m.reserve(m.plans[l].stride); err != nil {
			_ = m.Close()
			return nil, fmt.Errorf("experts: fixed memory: layer %d of %d experts of %d bytes: %w", l, shape.Experts, b, err)
		}
		if huge {
			m.adviseHuge(m.stacks[l], m.plans[l])
		}
	}
	return m, nil
}

// reserve maps the stack of one layer.
func (m *FixedMemory) reserve(stride int64) error {
	if int64(m.shape.Experts) > (1<<46)/stride {
		return fmt.Errorf("exceeds the address space")
	}
	size := int(stride) * m.shape.Experts
	seg, err := unix.Mmap(-1, 0, size+hugeBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return err
	}
	m.maps = append(m.maps, seg)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(seg))) & (hugeBytes - 1))
	m.stacks = append(m.stacks, seg[skip:][:size:size])
	_ = unix.Madvise(seg, unix.MADV_NOHUGEPAGE) // refused by kernels without huge pages
	return nil
}

// adviseHuge asks for huge pages where the plan has them. If the kernel runs out
// of mappings, the rest stays in small ones.
func (m *FixedMemory) adviseHuge(stack []byte, p stackPlan) {
	if p.prefix == 0 {
		return
	}
	each := p.stride
	if p.prefix == p.stride {
		each = int64(len(stack))
	}
	for at := int64(0); at < int64(len(stack)); at += each {
		run := stack[at:][:each]
		if p.prefix < p.stride {
			run = run[:p.prefix]
		}
		if unix.Madvise(run, unix.MADV_HUGEPAGE) != nil {
			return
		}
		m.huge = true
	}
}

// Stack is the address range of a layer: expert i at i times the layer's
// StackStride. Only what a lease is held of may be read; the rest may be zero, or
// change at any time. Valid until the cache has closed the memory.
func (m *FixedMemory) Stack(layer int) []byte { return m.stacks[layer] }

// StackStride is the bytes from the start of an expert of a layer's Stack to that
// of the next: at least the layer's slot bytes, a multiple of 4096.
func (m *FixedMemory) StackStride(layer int) int64 { return m.plans[layer].stride }

// Take lends the expert's own range. It waits for a Give or Move of the same
// expert's last one that is under way; callers give back before they take.
func (m *FixedMemory) Take(id layout.ExpertID, bytes int64) ([]byte, error) {
	b, err := m.claim(id, bytes)
	if err != nil {
		return nil, err
	}
	return m.lockLent(b)
}

// claim marks an expert's range as lent. Its capacity is the stride.
func (m *FixedMemory) claim(id layout.ExpertID, bytes int64) ([]byte, error) {
	if !m.shape.Contains(id) {
		return nil, ErrUnknownExpert
	}
	if slot := m.bytes[id.Layer]; bytes != slot {
		return nil, fmt.Errorf("experts: fixed memory: cannot lend %d bytes of a slot of %d", bytes, slot)
	}
	ord := m.shape.Ordinal(id)
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.state[ord] == addressLent {
		m.gone.Wait()
	}
	if m.state[ord] == addressLost {
		return nil, lostError(id)
	}
	m.state[ord] = addressLent
	stride := m.plans[id.Layer].stride
	at := int64(id.Index) * stride
	return m.stacks[id.Layer][at : at+bytes : at+stride], nil
}

// lockLent locks a range that was lent, or gives it back.
func (m *FixedMemory) lockLent(b []byte) ([]byte, error) {
	if m.locked {
		if err := lockPages(b); err != nil {
			m.Give(b)
			return nil, err
		}
	}
	return b, nil
}

func (m *FixedMemory) lock() { m.locked = true }

// Give returns the range's pages to the system.
func (m *FixedMemory) Give(b []byte) {
	if m.locked {
		unlockPages(b)
	}
	release(b[:cap(b)])
	m.end(m.holder(b), addressFree)
}

// end ends the loan of an expert's range.
func (m *FixedMemory) end(id layout.ExpertID, as addressState) {
	m.mu.Lock()
	m.state[m.shape.Ordinal(id)] = as
	m.mu.Unlock()
	m.gone.Broadcast()
}

// holder finds the expert whose range this is.
func (m *FixedMemory) holder(b []byte) layout.ExpertID {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	for l, stack := range m.stacks {
		start := uintptr(unsafe.Pointer(unsafe.SliceData(stack)))
		if at >= start && at < start+uintptr(len(stack)) {
			return layout.ExpertID{Layer: int32(l), Index: int32(int64(at-start) / m.plans[l].stride)}
		}
	}
	panic("experts: fixed memory: got a buffer back that it did not lend")
}

// HugePages reports whether ranges, or parts of them, are advised to be huge
// pages.
func (m *FixedMemory) HugePages() bool { return m.huge }

// Fixed is true.
func (m *FixedMemory) Fixed() bool { return true }

// Close unmaps all layers.
func (m *FixedMemory) Close() error {
	maps := m.maps
	m.maps = nil
	return unmap(maps)
}
