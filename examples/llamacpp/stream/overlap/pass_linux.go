package overlap

import (
	"context"
	"fmt"

	"outrider/layout"
)

// Begin begins a pass, when no other is on. It waits until then or the context's end.
func (m *Memory) Begin(ctx context.Context) error {
	select {
	case m.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Expect says which experts of a layer are on their way, and that no others are: who
// reads one waits until it is published, or the pass fails.
func (m *Memory) Expect(layer int, experts []int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetLocked()
	for _, e := range experts {
		ord := m.shape.Ordinal(layout.ExpertID{Layer: int32(layer), Index: e})
		if !m.wanted[ord] {
			m.wanted[ord] = true
			m.asked = append(m.asked, ord)
		}
	}
	if m.failed != nil {
		m.zeroLocked()
	}
}

func (m *Memory) forgetLocked() {
	for _, ord := range m.asked {
		m.wanted[ord] = false
	}
	m.asked = m.asked[:0]
}

// Publish shows an expert at its address, of which data is any part, leased and in its
// slot. Once is enough for as long as it is in memory. After the pass failed it does
// nothing.
func (m *Memory) Publish(data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.slotOf(data)
	ord := m.shape.Ordinal(s.id)
	if s.shown || m.failed != nil {
		return nil
	}
	if s.torn {
		return fmt.Errorf("overlap: %v cannot be shown: an earlier attempt failed", s.id)
	}
	at := m.place(s.id)
	if old := m.shown[ord]; old != nil { // evicted, and still on its way back
		release(m.endShownLocked(old))
	}
	to, from := s.class.pieces(at), s.class.pieces(s.b)
	for i := range to {
		if err := m.uffd.show(to[i], from[i]); err != nil {
			s.torn = true
			release(at)
			return fmt.Errorf("overlap: show %v: %w", s.id, err)
		}
	}
	s.shown, m.shown[ord] = true, s
	return nil
}

// Fail ends the waiting of all threads: what is not there reads as zeros until End,
// and what the pass computes means nothing.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failLocked(err)
}

func (m *Memory) failLocked(err error) {
	if m.failed == nil {
		m.failed = err
	}
	m.zeroLocked()
}

// Err is why the pass failed, nil if it has not.
func (m *Memory) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failed
}

// End ends a pass, when no thread reads in a stack any more, and returns why it failed.
func (m *Memory) End() error {
	defer func() { <-m.turn }()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetLocked()
	for _, b := range m.zeroed {
		release(b)
	}
	m.zeroed = m.zeroed[:0]
	err := m.failed
	m.failed = nil
	return err
}

// zeroLocked gives threads that wait for experts zeros to go on with.
func (m *Memory) zeroLocked() {
	for _, ord := range m.asked {
		if m.shown[ord] == nil {
			m.fillLocked(m.place(m.shape.ID(ord)))
		}
	}
	m.forgetLocked()
}

// fillLocked maps zeros where nothing is, until End, and reports whether there was
// such a place.
func (m *Memory) fillLocked(b []byte) bool {
	missing, err := m.uffd.zeros(b)
	if err != nil {
		_ = m.uffd.wake(b) // no memory for page tables: they will be back
	}
	if missing {
		m.zeroed = append(m.zeroed, b)
	}
	return missing
}

// fault is told of a thread that waits. It runs under the lock, as does whatever ends
// such waiting, so that the thread waits still, or was just about to.
func (m *Memory) fault(at uintptr) {
	id, page, ok := m.find(at)
	if !ok {
		return // not of a stack
	}
	ord := m.shape.Ordinal(id)
	switch {
	case m.shown[ord] != nil:
		if m.fillLocked(page) { // between the bytes that were read of it
			m.failLocked(fmt.Errorf("overlap: %w: %v, where it has none", ErrUnbidden, id))
		}
	case m.wanted[ord]:
		// Publish wakes it, or Fail.
	default:
		m.failLocked(fmt.Errorf("overlap: %w: %v", ErrUnbidden, id))
		m.fillLocked(m.around(id, at))
	}
}

// find says which expert an address is of, and its page. What lies between two experts
// counts as the first one's.
func (m *Memory) find(at uintptr) (id layout.ExpertID, page []byte, ok bool) {
	for l, stack := range m.stacks {
		start := uintptr(address(stack))
		if at < start || at >= start+uintptr(len(stack)) {
			continue
		}
		n := int64(at - start)
		id = layout.ExpertID{Layer: int32(l), Index: int32(n / m.layers[l].stride)}
		return id, stack[n/pageBytes*pageBytes:][:pageBytes:pageBytes], true
	}
	return id, nil, false
}

// around is the expert's bytes, or what lies between it and the next one.
func (m *Memory) around(id layout.ExpertID, at uintptr) []byte {
	c, b := m.layers[id.Layer], m.place(id)
	if at < uintptr(address(b))+uintptr(c.bytes) {
		return b
	}
	return m.stacks[id.Layer][int64(id.Index)*c.stride:][c.bytes:c.stride]
}
