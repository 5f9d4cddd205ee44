package experts

import (
	"fmt"
	"math"

	"outrider/layout"
)

// Fill is a slot that its holder writes the expert's bytes into. It ends in
// Commit, Abort or Abandon, exactly once; until then the slot counts as in
// flight. A Fill is a value that may be copied; all copies are one fill. Swap
// makes a new one of it.
type Fill struct {
	slot *slot
	gen  uint64
	id   layout.ExpertID
	buf  []byte
}

// Begin finds room for an absent expert, evicting where the class allows (see
// Table.Begin), and lends the slot to be filled. For a speculative read, own
// is the newcomer's own Policy.Expect plus the margin by which a victim must
// be expected later; a demand ignores it. Begin may give memory back to the
// system, but waits for nobody.
//
// Errors: ErrNoRoom, ErrNotWorth, ErrResident, ErrFilling, ErrClosed,
// ErrUnknownExpert, or that of the Memory.
func (c *Cache) Begin(id layout.ExpertID, class Class, own float64) (Fill, error) {
	if !c.shape.Contains(id) {
		return Fill{}, ErrUnknownExpert
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return Fill{}, ErrClosed
	}
	if c.occupied[id] {
		c.mu.Unlock()
		return Fill{}, ErrFilling
	}
	victims, err := c.table.Begin(id, class, own)
	if err != nil {
		c.mu.Unlock()
		return Fill{}, err
	}
	need := c.table.bytes[id.Layer]
	reuse, d := c.reuseLocked(victims, need)
	s := c.newSlotLocked(id)
	c.fills++
	c.mu.Unlock()

	c.give(&d) // first, since a memory may have to wait for it
	buf, err := c.memoryFor(reuse, id, need)
	c.finish(&d)
	if err != nil {
		c.endEmpty(s)
		return Fill{}, fmt.Errorf("experts: slot for %v: %w", id, err)
	}
	s.buf = buf // nobody else looks at it before Commit
	return Fill{slot: s, gen: s.fill, id: id, buf: buf}, nil
}

// reuseLocked picks the victim whose memory goes straight to the newcomer. The
// others, and what the newcomer does not need of it, are charged until they
// are back with the system.
func (c *Cache) reuseLocked(victims []layout.ExpertID, need int64) (reuse []byte, d dropped) {
	if len(victims) == 0 {
		return nil, d
	}
	largest := 0
	for i, v := range victims {
		if c.table.bytes[v.Layer] > c.table.bytes[victims[largest].Layer] {
			largest = i
		}
	}
	d.bytes = -need
	for i, v := range victims {
		buf := c.takeSlotLocked(v)
		d.bytes += int64(len(buf))
		if i == largest {
			reuse = buf
		} else {
			d.add(buf)
		}
	}
	d.bytes = max(d.bytes, 0)
	c.beginDropLocked(&d)
	return reuse, d
}

func (c *Cache) newSlotLocked(id layout.ExpertID) *slot {
	var s *slot
	if n := len(c.spare); n > 0 {
		s = c.spare[n-1]
		c.spare = c.spare[:n-1]
	} else {
		s = &slot{cache: c}
	}
	s.id = id
	c.slots[c.shape.Ordinal(id)] = s
	return s
}

// memoryFor turns a victim's buffer into one for id, or takes a fresh one.
func (c *Cache) memoryFor(reuse []byte, id layout.ExpertID, need int64) ([]byte, error) {
	if reuse == nil {
		return c.memory.Take(id, need)
	}
	if c.poison {
		poison(reuse)
	}
	return c.memory.Move(reuse, id, need)
}

// endEmpty ends a fill whose memory is gone.
func (c *Cache) endEmpty(s *slot) {
	c.mu.Lock()
	s.fill++
	c.endFillLocked(s)
	unmap := c.unmapLocked()
	c.mu.Unlock()
	c.after(unmap)
}

func (c *Cache) endFillLocked(s *slot) {
	c.table.Abort(s.id)
	c.takeSlotLocked(s.id)
	c.fills--
}

// ID is the expert that is being filled.
func (f Fill) ID() layout.ExpertID { return f.id }

// Bytes is the slot to write into: exactly Options.Bytes of the layer, at an
// address that is a multiple of 4096, with any content. It is the holder's
// alone until the fill ends, and not to be touched after Commit or Abort.
func (f Fill) Bytes() []byte { return f.buf }

// Commit publishes the filled slot. The parts are copied. Each element of
// leases becomes a lease of its own, taken before anybody could evict the
// expert, and must be released; with none, the expert is evictable at once.
//
// After Close it ends the fill as Abort does and returns ErrClosed. ErrParts
// (a part outside of the slot) leaves the fill open; ErrFillEnded: it was
// ended before.
func (f Fill) Commit(parts []layout.Part, leases []Lease) error {
	if f.slot == nil {
		return ErrFillEnded
	}
	if err := f.checkParts(parts); err != nil {
		return err
	}
	if len(leases) > math.MaxInt32 {
		return fmt.Errorf("experts: %d leases of one expert are too many", len(leases))
	}
	c := f.slot.cache
	c.mu.Lock()
	if f.slot.fill != f.gen {
		c.mu.Unlock()
		return ErrFillEnded
	}
	if c.closed {
		c.mu.Unlock()
		if err := f.Abort(); err != nil {
			return err
		}
		return ErrClosed
	}
	f.slot.fill++
	f.slot.parts = append(f.slot.parts[:0], parts...)
	c.fills--
	victims := c.table.Commit(f.id, len(leases))
	for i := range leases {
		leases[i] = c.leaseLocked(f.slot)
	}
	d := c.dropLocked(victims)
	c.mu.Unlock()
	if !c.settle(d) && len(leases) == 0 {
		c.after(false)
	}
	return nil
}

func (f Fill) checkParts(parts []layout.Part) error {
	size := int64(len(f.buf))
	for i, p := range parts {
		if p.At < 0 || p.Bytes < 0 || p.At > size || p.Bytes > size-p.At {
			return fmt.Errorf("%w: part %d of %v at %d of %d bytes, slot has %d", ErrParts, i, f.id, p.At, p.Bytes, size)
		}
	}
	return nil
}

// Abort gives the slot up; the expert is absent again. Call it only when
// nothing writes into the slot any more, a cancelled read of the kernel
// included (else Abandon): its memory goes to the system and then to others.
// ErrFillEnded: the fill was ended before.
func (f Fill) Abort() error {
	if f.slot == nil {
		return ErrFillEnded
	}
	c := f.slot.cache
	c.mu.Lock()
	if f.slot.fill != f.gen {
		c.mu.Unlock()
		return ErrFillEnded
	}
	f.slot.fill++
	c.mu.Unlock()

	// Still charged and in flight, so nobody else can get at the slot.
	c.giveOne(f.buf)

	c.mu.Lock()
	c.endFillLocked(f.slot)
	unmap := c.unmapLocked()
	c.mu.Unlock()
	c.after(unmap)
	return nil
}
