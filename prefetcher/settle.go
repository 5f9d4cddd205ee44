package prefetcher

import (
	"fmt"
	"slices"
	"time"

	"outrider/experts"
	"outrider/layout"
)

func (p *Prefetcher) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.closed
}

// endReading notes that the source is no longer busy with the flight.
func (p *Prefetcher) endReading(f *flight) {
	now := time.Now()
	p.mu.Lock()
	p.mu.pace.all.end(now)
	took := now.Sub(f.began)
	p.mu.pace.ended(took)
	if f.ideal > 0 && f.err == nil && !f.again && !f.twinned {
		p.mu.crowd.told(f.beside, took.Seconds()/float64(f.before), f.ideal/float64(f.before))
	}
	p.mu.Unlock()
}

// publish commits with a lease for each waiter. Whoever joins while that goes on
// finds the expert resident.
func (p *Prefetcher) publish(f *flight) {
	p.endReading(f)
	p.mu.Lock()
	if p.mu.closed {
		p.mu.Unlock()
		p.giveBack(f)
		return
	}
	stray := p.dropTwinLocked(f)
	f.told = append(f.told[:0], f.waiters...)
	f.waiters = f.waiters[:0]
	p.mu.Unlock()
	stray.Release()

	for len(f.leases) < len(f.told) {
		f.leases = append(f.leases, experts.Lease{})
	}
	f.leases = f.leases[:len(f.told)]
	if err := f.fill.Commit(f.place.Parts, f.leases); err != nil {
		if err != experts.ErrClosed {
			p.giveBack(f)
		}
		f.held = false
		p.mu.Lock()
		f.waiters = append(f.waiters, f.told...)
		p.mu.Unlock()
		p.fail(f, fmt.Errorf("prefetcher: %v: %w", f.id, err))
		return
	}
	for i, wt := range f.told {
		p.tell(wt, f.leases[i], nil)
	}
	p.alreadyThere(f)
}

// tell answers one waiter.
func (p *Prefetcher) tell(wt waiting, lease experts.Lease, err error) {
	p.demandTimes.add(time.Since(wt.asked))
	wt.w.Arrived(wt.tag, lease, err)
}

// alreadyThere ends a flight whose expert is resident: those who wait pin it
// themselves, and demand it again if it was evicted before they could.
func (p *Prefetcher) alreadyThere(f *flight) {
	id, late := p.endAndTake(f)
	for _, wt := range late {
		lease, out := p.cache.Pin(id)
		switch {
		case out.Resident():
			p.tell(wt, lease, nil)
		case out == experts.Refused:
			p.tell(wt, experts.Lease{}, fmt.Errorf("prefetcher: %v: %w", id, experts.ErrClosed))
		default:
			p.demand(id, wt)
		}
	}
}

// endAndTake forgets the flight and returns its waiters. Mostly there are none, so
// that the copy costs nothing.
func (p *Prefetcher) endAndTake(f *flight) (id layout.ExpertID, waiters []waiting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id = f.id
	waiters = append(waiters, f.waiters...)
	p.endLocked(f)
	return id, waiters
}

// fail ends a flight with an error for those who wait, and gives its slot back. A
// failed read that nobody waits for is only logged: the expert stays absent.
func (p *Prefetcher) fail(f *flight, err error) {
	if f.held {
		p.giveBack(f)
	}
	id, waiters := p.endAndTake(f)
	if err == errStale {
		for _, wt := range waiters { // since it was stopped
			p.demand(id, wt)
		}
		return
	}
	p.count.failed.Add(1)
	if len(waiters) == 0 && p.log != nil {
		p.log.Debug("prefetcher: a read that nobody waits for failed", "id", id.String(), "error", err)
	}
	for _, wt := range waiters {
		p.tell(wt, experts.Lease{}, err)
	}
}

// refused ends the opening of a flight that the cache had no slot for. Seen is the
// epoch from before the cache was asked. The worker that calls looks for a job next,
// so nobody need be woken.
func (p *Prefetcher) refused(f *flight, class Class, seen uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.mu.closed:
	case len(f.waiters) == 0:
		if class != Demand {
			p.count.dropped.Add(1)
		}
		p.endLocked(f)
	case class != Demand:
		// It was promoted while it was opened for a forecast.
		f.speculative = false
		f.state = flightQueued
		p.mu.queue.Push(Item{ID: f.id, Class: Demand, NeededBy: p.mu.step, P: 1})
	default:
		if p.mu.fullEpoch != seen {
			p.mu.fullEpoch, p.mu.fullBytes = seen, noLimit
		}
		p.mu.fullBytes = min(p.mu.fullBytes, p.slotBytes[f.id.Layer])
		p.parkLocked(f)
	}
}

// parkLocked lets a demand wait for room.
func (p *Prefetcher) parkLocked(f *flight) {
	f.state = flightParked
	if f.waited {
		p.mu.parked = slices.Insert(p.mu.parked, 0, f) // it keeps its turn
	} else {
		p.mu.parked = append(p.mu.parked, f)
	}
	f.waited = true
	p.parked.Add(1)
	p.wakeAtLocked(time.Now().Add(p.opt.SilentAfter))
	p.count.parkings.Add(1)
}

// fullLocked is the slot size for which, and above, the cache has no room: what it
// refused since room was freed last. It is why one refusal, not one for each parked
// flight, answers each RoomFreed.
func (p *Prefetcher) fullLocked() int64 {
	if p.mu.fullEpoch != p.epoch.Load() {
		p.mu.fullBytes = noLimit
	}
	return p.mu.fullBytes
}

// unparkLocked takes the first parked flight that may find room.
func (p *Prefetcher) unparkLocked() *flight {
	if len(p.mu.parked) == 0 {
		return nil
	}
	full := p.fullLocked()
	for _, f := range p.mu.parked {
		if p.slotBytes[f.id.Layer] < full {
			p.unparkOneLocked(f)
			return f
		}
	}
	return nil
}

// unparkOneLocked takes a flight out of those that wait for room.
func (p *Prefetcher) unparkOneLocked(f *flight) {
	p.mu.parked = without(p.mu.parked, slices.Index(p.mu.parked, f))
	p.parked.Add(-1)
}
