package experts

import (
	"sync/atomic"

	"outrider/layout"
)

// Lease is pinned, read-only access to one expert's weights. The bytes neither
// move nor change until Release. A Lease is a value that may be copied; all
// copies are one lease, to be released once. The zero Lease holds nothing.
//
// One lease may be read from several goroutines; whoever releases it must know
// that the others are done.
type Lease struct {
	ticket *ticket
	slot   *slot
	gen    uint64
	id     layout.ExpertID
}

// ticket is the right to one release, of a lease or a stray. Its generation
// moves on when it is used, so that a second release of the same lease finds
// another number, whatever became of the slot since.
type ticket struct {
	gen  atomic.Uint64
	next *ticket // free ones; guarded by Cache.mu
}

// ticketChunk is how many tickets are made at a time.
const ticketChunk = 32

// leaseLocked makes a lease of a slot that the table has pinned.
func (c *Cache) leaseLocked(s *slot) Lease {
	t := c.ticketLocked()
	c.leases++
	return Lease{ticket: t, slot: s, gen: t.gen.Load(), id: s.id}
}

func (c *Cache) ticketLocked() *ticket {
	if c.tickets == nil {
		chunk := make([]ticket, ticketChunk)
		for i := range chunk {
			chunk[i].next = c.tickets
			c.tickets = &chunk[i]
		}
	}
	t := c.tickets
	c.tickets = t.next
	t.next = nil
	return t
}

// punchLocked uses the ticket up. If that was done before, it counts it and
// reports false.
func (c *Cache) punchLocked(t *ticket, gen uint64) bool {
	if t.gen.Load() != gen {
		c.twice++
		return false
	}
	t.gen.Add(1)
	t.next = c.tickets
	c.tickets = t
	return true
}

// Held reports whether this is a lease that was not released yet.
func (l Lease) Held() bool { return l.ticket != nil && l.ticket.gen.Load() == l.gen }

// ID is the expert that the lease is, or was, of.
func (l Lease) ID() layout.ExpertID { return l.id }

// Bytes is the whole slot, padding included: read-only, valid until Release;
// nil after it.
func (l Lease) Bytes() []byte {
	if !l.Held() {
		return nil
	}
	return l.slot.buf
}

// Parts says where the projections lie in Bytes: read-only, owned by the slot,
// valid until Release; nil after it.
func (l Lease) Parts() []layout.Part {
	if !l.Held() {
		return nil
	}
	return l.slot.parts
}

// Release ends the lease; the bytes must not be touched any more. A second
// Release, also of a copy, does nothing but count (Stats.ReleasedTwice) and
// returns ErrReleased: it never ends somebody else's lease.
func (l Lease) Release() error {
	if l.ticket == nil {
		return ErrReleased
	}
	c := l.slot.cache
	c.mu.Lock()
	if !c.punchLocked(l.ticket, l.gen) {
		c.mu.Unlock()
		return ErrReleased
	}
	c.leases--
	victims := c.table.Unpin(l.id)
	last := c.table.Pins(l.id) == 0
	if !last {
		c.mu.Unlock()
		return nil
	}
	if len(victims) == 0 { // the everyday case
		c.mu.Unlock()
		c.after(false)
		return nil
	}
	d := c.dropLocked(victims)
	c.mu.Unlock()
	c.settle(d)
	return nil
}
