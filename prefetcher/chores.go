package prefetcher

import "outrider/layout"

// chore is work that a runner's call came upon. It may give memory back to the
// system, which takes a system call, so a worker does it.
type chore struct {
	f  *flight         // to be settled
	id layout.ExpertID // or, without one, an expert to be dropped: it lapsed
}

// choreLocked leaves a chore to a worker.
func (p *Prefetcher) choreLocked(c chore) {
	p.mu.chores = append(p.mu.chores, c)
	p.wakeLocked(1)
}

// nextChoreLocked takes the oldest chore.
func (p *Prefetcher) nextChoreLocked() (c chore, ok bool) {
	if len(p.mu.chores) == 0 {
		return c, false
	}
	c = p.mu.chores[0]
	p.mu.chores = without(p.mu.chores, 0)
	return c, true
}

func (p *Prefetcher) do(c chore) {
	if c.f != nil {
		p.settle(c.f)
		return
	}
	p.cache.Lapse(c.id) // it may have been used or dropped meanwhile
}
