package experts

import "outrider/layout"

// dropped is memory of evicted experts on its way back to the system. It stays
// charged (Table.Hold) until it is there.
type dropped struct {
	open  bool  // between beginDropLocked and endDropLocked
	bytes int64 // charged until then
	count int
	few   [4][]byte // most evictions are of one expert and must not allocate
	more  [][]byte
}

func (d *dropped) add(b []byte) {
	if d.count < len(d.few) {
		d.few[d.count] = b
	} else {
		d.more = append(d.more, b)
	}
	d.count++
}

// dropLocked takes the slots of experts that the table evicted, and charges
// them until settle.
func (c *Cache) dropLocked(victims []layout.ExpertID) dropped {
	var d dropped
	for _, id := range victims {
		buf := c.takeSlotLocked(id)
		d.add(buf)
		d.bytes += int64(len(buf))
	}
	c.beginDropLocked(&d)
	return d
}

// takeSlotLocked takes the buffer out of an expert's slot.
func (c *Cache) takeSlotLocked(id layout.ExpertID) []byte {
	ord := c.shape.Ordinal(id)
	s := c.slots[ord]
	c.slots[ord] = nil
	buf := s.buf
	s.buf = nil
	c.spare = append(c.spare, s)
	return buf
}

func (c *Cache) beginDropLocked(d *dropped) {
	if d.open = d.count > 0 || d.bytes > 0; d.open {
		c.table.Hold(d.bytes)
		c.working++
	}
}

func (c *Cache) endDropLocked(d *dropped) {
	if d.open {
		d.open = false
		c.table.Hold(-d.bytes)
		c.working--
	}
}

// settle gives memory back and ends its charge. It reports whether there was
// any, in which case Freed was called.
func (c *Cache) settle(d dropped) bool {
	c.give(&d)
	return c.finish(&d)
}

// finish ends the charge of memory that is back with the system.
func (c *Cache) finish(d *dropped) bool {
	if !d.open {
		return false
	}
	c.mu.Lock()
	c.endDropLocked(d)
	unmap := c.unmapLocked()
	c.mu.Unlock()
	c.after(unmap)
	return true
}

// give poisons and gives back, without a lock.
func (c *Cache) give(d *dropped) {
	for i := range min(d.count, len(d.few)) {
		c.giveOne(d.few[i])
	}
	for _, b := range d.more {
		c.giveOne(b)
	}
}

func (c *Cache) giveOne(b []byte) {
	if c.poison {
		poison(b)
	}
	c.memory.Give(b)
}

// unmapLocked reports, once, that the cache is closed and nothing lives in its
// memory any more: the caller then closes the memory off the lock.
func (c *Cache) unmapLocked() bool {
	if !c.closed || c.unmapped || c.leases > 0 || c.fills > 0 || c.working > 0 || c.table.count.strays > 0 {
		return false
	}
	c.unmapped = true
	return true
}
