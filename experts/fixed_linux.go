package experts

import (
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"outrider/layout"
)

var _ Memory = (*FixedMemory)(nil)

// FixedMemory gives each expert one address for the whole run: the records of
// a layer lie in one range of address space, in the order of their indices,
// and so each projection is a stacked tensor with the record's size as its
// stride. Pages are committed when an expert is read and go back to the system
// when it is evicted, so eviction costs more than with the default memory.
// Huge pages are used where records are whole huge pages.
//
// Pass it as Options.Memory with the same shape and slot bytes. It exists on
// Linux only.
type FixedMemory struct {
	shape  layout.Shape
	bytes  []int64
	stacks [][]byte // by layer
	maps   [][]byte
	huge   bool
	locked bool // ranges are locked while they are lent

	mu   sync.Mutex
	gone sync.Cond // on mu: a buffer was given back
	lent []bool    // by ordinal
}

// NewFixedMemory reserves address space for every expert; slotBytes is that of
// Options.Bytes.
func NewFixedMemory(shape layout.Shape, slotBytes []int64) (*FixedMemory, error) {
	o := Options{Shape: shape, Bytes: slotBytes}
	if err := o.validate(); err != nil {
		return nil, err
	}
	m := &FixedMemory{shape: shape, bytes: slotBytes, lent: make([]bool, shape.Count())}
	m.gone.L = &m.mu
	for l, b := range slotBytes {
		if err := m.reserve(b); err != nil {
			_ = m.Close()
			return nil, fmt.Errorf("experts: fixed memory: layer %d of %d experts of %d bytes: %w", l, shape.Experts, b, err)
		}
	}
	return m, nil
}

// reserve maps the stack of one layer.
func (m *FixedMemory) reserve(bytes int64) error {
	if int64(m.shape.Experts) > (1<<46)/bytes {
		return fmt.Errorf("exceeds the address space")
	}
	size := int(bytes) * m.shape.Experts
	seg, err := unix.Mmap(-1, 0, size+hugeBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return err
	}
	m.maps = append(m.maps, seg)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(seg))) & (hugeBytes - 1))
	stack := seg[skip:][:size:size]
	m.stacks = append(m.stacks, stack)
	_ = unix.Madvise(seg, unix.MADV_NOHUGEPAGE) // refused by kernels without huge pages
	if bytes%hugeBytes == 0 && hugePagesAllowed() {
		m.huge = unix.Madvise(stack, unix.MADV_HUGEPAGE) == nil
	}
	return nil
}

// Stack is the address range of a layer: expert i at i times the layer's slot
// bytes. Only what a lease is held of may be read; the rest may be zero, or
// change at any time. Valid until the cache has closed the memory.
func (m *FixedMemory) Stack(layer int) []byte { return m.stacks[layer] }

// Take lends the expert's own range. It waits for a Give of the same expert
// that is under way; callers give back before they take.
func (m *FixedMemory) Take(id layout.ExpertID, bytes int64) ([]byte, error) {
	if !m.shape.Contains(id) {
		return nil, ErrUnknownExpert
	}
	stride := m.bytes[id.Layer]
	if bytes < 1 || bytes > stride {
		return nil, fmt.Errorf("experts: fixed memory: cannot lend %d bytes of a slot of %d", bytes, stride)
	}
	ord := m.shape.Ordinal(id)
	m.mu.Lock()
	for m.lent[ord] {
		m.gone.Wait()
	}
	m.lent[ord] = true
	m.mu.Unlock()
	at := int64(id.Index) * stride
	b := m.stacks[id.Layer][at : at+bytes : at+stride]
	if m.locked {
		if err := lockPages(b); err != nil {
			m.Give(b)
			return nil, err
		}
	}
	return b, nil
}

func (m *FixedMemory) lock() { m.locked = true }

// Move gives the old expert's range back and lends the new one's.
func (m *FixedMemory) Move(b []byte, id layout.ExpertID, bytes int64) ([]byte, error) {
	m.Give(b)
	return m.Take(id, bytes)
}

// Give returns the range's pages to the system.
func (m *FixedMemory) Give(b []byte) {
	if m.locked {
		unlockPages(b)
	}
	release(b[:cap(b)])
	ord := m.ordinal(b)
	m.mu.Lock()
	m.lent[ord] = false
	m.mu.Unlock()
	m.gone.Broadcast()
}

// ordinal finds the expert whose range this is.
func (m *FixedMemory) ordinal(b []byte) int {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	for l, stack := range m.stacks {
		start := uintptr(unsafe.Pointer(unsafe.SliceData(stack)))
		if at >= start && at < start+uintptr(len(stack)) {
			return l*m.shape.Experts + int(int64(at-start)/m.bytes[l])
		}
	}
	panic("experts: fixed memory: got a buffer back that it did not lend")
}

// HugePages reports whether the ranges are advised to be huge pages.
func (m *FixedMemory) HugePages() bool { return m.huge }

// Fixed is true.
func (m *FixedMemory) Fixed() bool { return true }

// Close unmaps all layers.
func (m *FixedMemory) Close() error {
	maps := m.maps
	m.maps = nil
	return unmap(maps)
}
