package overlap

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"outrider/experts"
	"outrider/layout"
)

var _ experts.Stacked = (*Memory)(nil)

// Memory is experts.Stacked memory whose experts appear when they are published. Reads
// land in slots that any expert of the size may have; what a lease says is in a slot
// may be read there until it is published, and then in the stack only.
//
// A cache that poisons what it drops has no effect on published experts. Methods may be
// called from several goroutines; Expect, Publish, Fail and End are the pass's that
// began.
type Memory struct {
	shape    layout.Shape
	uffd     *userfaults
	huge     bool
	classes  map[int64]*class // by bytes of a slot
	layers   []*class
	stacks   [][]byte
	segments [][]byte
	turn     chan struct{}  // held by the pass
	watching sync.WaitGroup // the goroutine that hears of faults

	mu     sync.Mutex
	shown  []*slot // by ordinal; nil: not in the stack
	wanted []bool  // by ordinal: on its way, threads that read it wait
	asked  []int   // ordinals of those
	failed error   // the pass's first
	zeroed [][]byte
}

// New reserves address space and asks the kernel; slotBytes is that of
// experts.Options.Bytes. Errors are ErrUnavailable, or that there is no address space.
func New(shape layout.Shape, slotBytes []int64) (*Memory, error) {
	if err := validate(shape, slotBytes); err != nil {
		return nil, fmt.Errorf("overlap: %w", err)
	}
	uffd, err := openUserfaults()
	if err != nil {
		return nil, fmt.Errorf("overlap: %w", err)
	}
	m := &Memory{
		shape: shape, uffd: uffd, huge: hugePagesAllowed(), classes: map[int64]*class{}, turn: make(chan struct{}, 1),
		shown: make([]*slot, shape.Count()), wanted: make([]bool, shape.Count()),
	}
	for l, b := range slotBytes {
		if err := m.addLayer(b); err != nil {
			return nil, errors.Join(fmt.Errorf("overlap: layer %d of %d experts of %d bytes: %w", l, shape.Experts, b, err), m.Close())
		}
	}
	m.watching.Go(func() { uffd.wait(m.lock, m.fault) })
	return m, nil
}

func validate(shape layout.Shape, slotBytes []int64) error {
	if err := shape.Validate(); err != nil {
		return err
	}
	if len(slotBytes) != shape.Layers {
		return fmt.Errorf("%d slot sizes for %d layers, want one a layer", len(slotBytes), shape.Layers)
	}
	for l, b := range slotBytes {
		if b < pageBytes || b%pageBytes != 0 {
			return fmt.Errorf("layer %d has slots of %d bytes, want a multiple of %d", l, b, pageBytes)
		}
		if int64(shape.Experts) > (1<<46)/(b+hugeBytes) {
			return fmt.Errorf("layer %d of %d experts of %d bytes exceeds the address space", l, shape.Experts, b)
		}
	}
	return nil
}

func (m *Memory) lock() (unlock func()) {
	m.mu.Lock()
	return m.mu.Unlock
}

// addLayer reserves a stack. It is advised to have huge pages, not that it get any by a
// fault, but that a thread that waits leaves the place free for one.
func (m *Memory) addLayer(bytes int64) error {
	c := m.classes[bytes]
	if c == nil {
		c = newClass(bytes, m.huge)
		m.classes[bytes] = c
	}
	segment, stack, err := reserve(int64(m.shape.Experts) * c.stride)
	if err != nil {
		return err
	}
	m.segments, m.stacks, m.layers = append(m.segments, segment), append(m.stacks, stack), append(m.layers, c)
	if c.huge > 0 {
		_ = unix.Madvise(stack, unix.MADV_HUGEPAGE)
	}
	return m.uffd.register(stack, registerMissing)
}

// Stack is the range of a layer. Reading an expert in it waits while the expert is
// expected, and finds zeros, and fails the pass, where it is not. The Go runtime must
// not do it: a goroutine that waits so cannot be preempted.
func (m *Memory) Stack(layer int) []byte { return m.stacks[layer] }

// StackStride is the bytes from one expert's start to the next one's.
func (m *Memory) StackStride(layer int) int64 { return m.layers[layer].stride }

// Take lends a slot.
func (m *Memory) Take(id layout.ExpertID, bytes int64) ([]byte, error) {
	if !m.shape.Contains(id) {
		return nil, experts.ErrUnknownExpert
	}
	c := m.layers[id.Layer]
	if bytes != c.bytes {
		return nil, fmt.Errorf("overlap: cannot lend %d bytes of a slot of %d", bytes, c.bytes)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := c.take(m.uffd)
	if err != nil {
		return nil, err
	}
	s.id = id
	return s.b, nil
}

// Move turns a slot into one for another expert. If the old one was published its pages
// move back into it.
func (m *Memory) Move(b []byte, id layout.ExpertID, bytes int64) ([]byte, error) {
	m.mu.Lock()
	s := m.slotOf(b)
	if !m.shape.Contains(id) || m.layers[id.Layer] != s.class || bytes != s.class.bytes {
		m.giveLocked(s)
		m.mu.Unlock()
		return m.Take(id, bytes)
	}
	defer m.mu.Unlock()
	if at := m.endShownLocked(s); at != nil && !m.hide(s, at) {
		release(at)
		release(s.b)
	}
	s.id = id
	return s.b, nil
}

// hide moves an expert's pages back into its slot.
func (m *Memory) hide(s *slot, at []byte) bool {
	from, to := s.class.pieces(at), s.class.pieces(s.b)
	for i := range to {
		if m.uffd.hide(to[i], from[i]) != nil {
			return false
		}
	}
	return true
}

// Give returns a slot's pages to the system, wherever they are.
func (m *Memory) Give(b []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.giveLocked(m.slotOf(b))
}

func (m *Memory) giveLocked(s *slot) {
	release(m.endShownLocked(s))
	release(s.b)
	s.class.free = append(s.class.free, s)
}

// endShownLocked forgets that a slot was published, and returns where; nil if it was
// not.
func (m *Memory) endShownLocked(s *slot) (at []byte) {
	s.torn = false
	if !s.shown {
		return nil
	}
	s.shown = false
	m.shown[m.shape.Ordinal(s.id)] = nil
	return m.place(s.id)
}

// place is the address of an expert.
func (m *Memory) place(id layout.ExpertID) []byte {
	c := m.layers[id.Layer]
	return m.stacks[id.Layer][int64(id.Index)*c.stride:][:c.bytes:c.bytes]
}

// slotOf finds a slot by any part of it.
func (m *Memory) slotOf(b []byte) *slot {
	at := address(b)
	for _, c := range m.classes {
		if s := c.find(at); s != nil {
			return s
		}
	}
	panic("overlap: got memory that it did not lend")
}

// HugePages reports whether slots are advised to be huge pages.
func (m *Memory) HugePages() bool {
	for _, c := range m.layers {
		if c.huge > 0 {
			return m.huge
		}
	}
	return false
}

// Fixed is false: an expert has one address to be computed with, and any slots to be
// read into.
func (m *Memory) Fixed() bool { return false }

// Close unmaps all. No thread may read in a stack any more.
func (m *Memory) Close() error {
	errs := []error{m.uffd.file.Close()}
	m.watching.Wait()
	for _, c := range m.classes {
		errs = append(errs, c.close())
	}
	for _, s := range m.segments {
		errs = append(errs, unix.Munmap(s))
	}
	m.segments, m.stacks = nil, nil
	return errors.Join(errs...)
}
