package experts

import (
	"fmt"

	"outrider/layout"
)

// Stray is memory of an expert beside its slot: a second buffer to read into, or
// one that a read which is stuck in the kernel, and can neither be called back
// nor waited for, may still write into. It stays charged, and nobody else gets
// it, until Release or Swap. A Stray is a value that may be copied; all copies
// are one stray. The zero Stray holds nothing.
type Stray struct {
	cache  *Cache
	ticket *ticket
	gen    uint64
	id     layout.ExpertID
	buf    []byte
}

// Spare lends a second buffer for the fill's expert, of any content, so that a
// read that is stuck can be tried again elsewhere while it may still come. Its
// holder reads into Stray.Bytes, and then either makes it the fill's buffer with
// Swap or releases it.
//
// It needs room as a demand does: it may evict, but waits for nobody. Both buffers
// are charged, so many spares at once leave less than the floor to those who wait
// for room.
//
// Errors, all of which leave f as it was: ErrNoRoom, ErrFixed, ErrClosed,
// ErrFillEnded, or that of the Memory.
func (f Fill) Spare() (Stray, error) {
	if f.slot == nil {
		return Stray{}, ErrFillEnded
	}
	c := f.slot.cache
	c.mu.Lock()
	if err := c.maySpareLocked(f); err != nil {
		c.mu.Unlock()
		return Stray{}, err
	}
	victims, err := c.table.Spare(f.id)
	if err != nil {
		c.mu.Unlock()
		return Stray{}, err
	}
	need := c.table.bytes[f.id.Layer]
	reuse, d := c.reuseLocked(victims, need)
	c.mu.Unlock()

	c.give(&d)
	buf, err := c.memoryFor(reuse, f.id, need)
	c.finish(&d)
	if err != nil {
		c.found(f.id)
		return Stray{}, fmt.Errorf("experts: second slot for %v: %w", f.id, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.strayLocked(f.id, buf), nil
}

func (c *Cache) maySpareLocked(f Fill) error {
	switch {
	case f.slot.fill != f.gen:
		return ErrFillEnded
	case c.closed:
		return ErrClosed
	case c.memory.Fixed():
		return ErrFixed
	}
	return nil
}

// Swap makes a stray of the same expert the fill's buffer, and the fill's a
// stray, into which the first read may still write. Both come back; f, s and
// their copies are ended. ErrFillEnded, which changes nothing: one of them was
// ended before, or they are of different experts.
func (f Fill) Swap(s Stray) (Fill, Stray, error) {
	if f.slot == nil || s.cache != f.slot.cache || s.id != f.id {
		return Fill{}, Stray{}, ErrFillEnded
	}
	c := f.slot.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.slot.fill != f.gen || !s.held() {
		return Fill{}, Stray{}, ErrFillEnded
	}
	c.punchLocked(s.ticket, s.gen)
	f.slot.fill++
	f.slot.buf = s.buf
	return Fill{slot: f.slot, gen: f.gen + 1, id: f.id, buf: s.buf}, c.strayLocked(f.id, f.buf), nil
}

// Bytes is the stray's memory. It is its holder's alone if it came from Spare,
// and otherwise also that of whoever still writes into it; nil once it was
// swapped or released.
func (s Stray) Bytes() []byte {
	if !s.held() {
		return nil
	}
	return s.buf
}

func (s Stray) held() bool { return s.ticket != nil && s.ticket.gen.Load() == s.gen }

// strayLocked makes a stray of a buffer that the table has charged as one.
func (c *Cache) strayLocked(id layout.ExpertID, buf []byte) Stray {
	t := c.ticketLocked()
	return Stray{cache: c, ticket: t, gen: t.gen.Load(), id: id, buf: buf}
}

// Abandon gives the slot up as Abort does, but may be called while something
// still writes into it: the expert is absent at once and may be read again,
// and the memory stays charged until the stray is released. At a fixed address
// (FixedMemory) Begin refuses the expert with ErrFilling until then.
// ErrFillEnded: the fill was ended before.
func (f Fill) Abandon() (Stray, error) {
	if f.slot == nil {
		return Stray{}, ErrFillEnded
	}
	c := f.slot.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.slot.fill != f.gen {
		return Stray{}, ErrFillEnded
	}
	f.slot.fill++
	c.table.Abandon(f.id)
	c.takeSlotLocked(f.id)
	c.fills--
	if c.memory.Fixed() {
		c.occupied[f.id] = true
	}
	return c.strayLocked(f.id, f.buf), nil
}

// Release gives the memory back to the system and ends its charge. Call it when
// nothing writes into the memory any more. A second Release, also of a copy or
// after Swap, does nothing but count (Stats.ReleasedTwice).
func (s Stray) Release() {
	if s.cache == nil {
		return
	}
	c := s.cache
	c.mu.Lock()
	if !c.punchLocked(s.ticket, s.gen) {
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()

	c.giveOne(s.buf) // still charged, so nobody else can get at it
	c.found(s.id)
}

// found ends the charge of memory that was astray and is with the system.
func (c *Cache) found(id layout.ExpertID) {
	c.mu.Lock()
	c.table.Found(int(id.Layer))
	delete(c.occupied, id)
	unmap := c.unmapLocked()
	c.mu.Unlock()
	c.after(unmap)
}
