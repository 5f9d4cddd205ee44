package prefetcher

import (
	"slices"
	"time"

	"outrider/experts"
	"outrider/layout"
)

// Speculate says what a forecast would have read ahead at the given step. The
// candidates replace those of the call before that were not begun yet: one that is
// to stay must be named again. Experts that are resident, queued or under way are
// passed over, and so are candidates that do not pay (Admission, Governor). It
// does not wait for reads. The slice is not kept; the order does not matter.
func (p *Prefetcher) Speculate(step int64, candidates []Candidate) {
	if p.opt.NoSpeculation {
		return
	}
	p.plan.Lock()
	defer p.plan.Unlock()
	list := p.plan.list[:0]
	for _, c := range candidates {
		if p.shape.Contains(c.ID) && !p.cache.Resident(c.ID) {
			list = append(list, c)
		}
	}
	Sort(list, p.shape)
	p.plan.list = list

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return
	}
	p.mu.step = max(p.mu.step, step)
	p.mu.items = p.mu.queue.ClearSpeculative(p.mu.items[:0])
	pushed := p.admitLocked(list)
	for _, it := range p.mu.items {
		if _, kept := p.mu.queue.Contains(it.ID); !kept {
			p.count.dropped.Add(1)
		}
	}
	p.wakeLocked(pushed)
	p.stopStaleLocked(func(f *flight) bool {
		return unnamedLocked(f, slices.ContainsFunc(list, func(c Candidate) bool { return c.ID == f.id }))
	})
}

// admitLocked queues those candidates that pay. The list is in the order in which
// they will be read.
func (p *Prefetcher) admitLocked(list []Candidate) (pushed int) {
	if p.mu.governor.Mode() == SpeculationOff {
		return 0
	}
	begun := 0 // for forecasts
	for _, f := range p.mu.flights {
		if f.class != Demand {
			begun++
		}
	}
	// Those are half done on average.
	pushed, rejected := p.admissionLocked().Fill(p.mu.queue, list, begun/2, func(id layout.ExpertID) bool { return p.mu.flights[id] != nil })
	p.count.rejected.Add(int64(rejected))
	return pushed
}

// Reach is how many steps ahead of its need a read must begin to be in time: the
// time of one read over that of a step, rounded up, as measured of late. It is 1
// while that is not known.
func (p *Prefetcher) Reach() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.pace.Reach()
}

func (p *Prefetcher) admissionLocked() Admission {
	return Admission{
		Step: p.mu.step, Threshold: p.mu.governor.Threshold(),
		ReadSteps: p.mu.pace.FreeSteps(), TopK: p.shape.TopK,
	}
}

// Progress tells that the given step, one layer execution, began. Queued
// speculative reads that can no longer be in time are dropped, and the governor
// learns how speculation did and how long the lanes were idle. What was read ahead long
// ago and never used is dropped (Lapses), and so is what is being read for a layer
// that is over. Steps only grow; an older one changes nothing. Call it once for each
// step that any sequence makes, with one count for all. It makes no system call, except
// to wake a worker.
func (p *Prefetcher) Progress(step int64) {
	seen := p.cache.Outcomes()
	now := time.Now()
	p.mu.Lock()
	changed := p.progressLocked(step, seen, now)
	// What was meant for a layer that is over has not been needed.
	p.stopStaleLocked(func(f *flight) bool { return f.item.NeededBy < p.mu.step })
	mode := p.mu.governor.Mode()
	usefulness := p.mu.governor.Usefulness()
	p.lapseLocked()
	p.mu.Unlock()
	if changed && p.log != nil {
		p.log.Info("prefetcher: speculation is "+mode.String(), "step", step, "usefulness", usefulness)
	}
}

// progressLocked reports whether the governor changed its mode.
func (p *Prefetcher) progressLocked(step int64, seen experts.Outcomes, now time.Time) bool {
	if p.mu.closed || step <= p.mu.pace.step && !p.mu.pace.stepAt.IsZero() {
		return false
	}
	p.mu.step = max(p.mu.step, step)
	busy := p.mu.pace.advance(step, now)
	p.mu.crowd.step()

	g := p.mu.governor
	before := g.Mode()
	// Another caller's newer snapshot may have been counted already.
	g.Useful(int(max(seen.Useful-p.mu.seen.Useful, 0)))
	g.Displaced(int(max(seen.Displaced-p.mu.seen.Displaced, 0)))
	p.mu.seen.Useful = max(p.mu.seen.Useful, seen.Useful)
	p.mu.seen.Displaced = max(p.mu.seen.Displaced, seen.Displaced)
	g.Step(step, busy)
	p.mu.items = p.mu.queue.Advance(p.mu.step, p.admissionLocked().Earliest(), p.mu.items[:0])
	if g.Mode() == SpeculationOff {
		p.mu.items = p.mu.queue.ClearSpeculative(p.mu.items)
	}
	p.count.dropped.Add(int64(len(p.mu.items)))
	p.wakeLocked(p.mu.queue.Len(Near) + p.mu.queue.Len(Far)) // the width may have grown
	return g.Mode() != before
}

// lapseLocked has the reads dropped that lapse now.
func (p *Prefetcher) lapseLocked() {
	if p.mu.closed {
		return
	}
	step, off := p.mu.step, p.mu.governor.Mode() == SpeculationOff
	for id, ok := p.mu.lapses.Next(step, off); ok; id, ok = p.mu.lapses.Next(step, off) {
		if p.mu.flights[id] != nil {
			p.mu.lapses.Begun(id, step) // look again later
			continue
		}
		p.choreLocked(chore{id: id})
	}
}
