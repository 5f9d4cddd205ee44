package prefetcher

import (
	"time"

	"outrider/experts"
)

// job is what a worker does next: open the flight, or read the block of it.
type job struct {
	f     *flight
	block *block // nil: open
	class Class  // as which it is opened
}

// work is one worker. It ends when the prefetcher is closed.
func (p *Prefetcher) work() error {
	for {
		j, ok := p.next()
		switch {
		case !ok:
			return nil
		case j.block == nil:
			p.open(j.f, j.class)
		default:
			p.read(j.f, j.block)
		}
	}
}

// next waits for a job.
func (p *Prefetcher) next() (job, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.mu.closed {
		if j, ok := p.takeLocked(); ok {
			return j, true
		}
		p.mu.idle++
		p.mu.wake.Wait()
		p.mu.idle--
	}
	return job{}, false
}

// takeLocked picks the next job; the order is in doc.go.
func (p *Prefetcher) takeLocked() (job, bool) {
	if p.mu.passed >= p.opt.Patience {
		if j, ok := p.aheadBlockLocked(); ok {
			return j, true
		}
	}
	if len(p.mu.demand) > 0 {
		if len(p.mu.ahead) > 0 {
			p.mu.passed++
		}
		return p.startBlockLocked(p.mu.demand[0], 0), true
	}
	if f := p.unparkLocked(); f != nil {
		p.wakeLocked(len(p.mu.parked)) // there may be room for more than one
		return p.openingLocked(f, Demand), true
	}
	if j, ok := p.queuedLocked(p.roomAheadLocked() && len(p.mu.ahead) == 0); ok {
		return j, true
	}
	return p.aheadBlockLocked()
}

// queuedLocked takes the next request from the queue. A demand that is known to
// find no room is parked on the way.
func (p *Prefetcher) queuedLocked(ahead bool) (job, bool) {
	for {
		pop := p.mu.queue.PopDemand
		if ahead && len(p.mu.parked) == 0 {
			pop = p.mu.queue.Pop
		}
		it, ok := pop()
		if !ok {
			return job{}, false
		}
		f := p.mu.flights[it.ID]
		if it.Class != Demand {
			f = p.newFlightLocked(it.ID)
			f.class, f.item = it.Class, it
			return p.openingLocked(f, it.Class), true
		}
		if p.slotBytes[it.ID.Layer] < p.fullLocked() {
			return p.openingLocked(f, Demand), true
		}
		p.parkLocked(f)
		if f := p.unparkLocked(); f != nil {
			return p.openingLocked(f, Demand), true
		}
	}
}

func (p *Prefetcher) openingLocked(f *flight, class Class) job {
	f.state = flightOpening
	if class != Demand {
		f.speculative = true
		p.mu.opening++
	}
	return job{f: f, class: class}
}

// roomAheadLocked reports whether one more speculative read may begin.
func (p *Prefetcher) roomAheadLocked() bool {
	if p.opt.NoSpeculation || !p.mu.governor.Allow() {
		return false
	}
	room, total := 0, p.mu.opening
	for lane, n := range p.mu.width {
		room += max(p.mu.governor.Width(lane)-n, 0)
		total += n
	}
	return room > p.mu.opening && total < p.mostAhead()
}

// mostAhead is how many workers may read ahead at once over all lanes: one is left
// to demands, if there is more than one.
func (p *Prefetcher) mostAhead() int { return max(p.opt.Workers-1, 1) }

// aheadBlockLocked takes a block of a speculative read under way. Once begun it
// holds a slot, so it goes on, one block a lane, even when the governor would not
// begin another.
func (p *Prefetcher) aheadBlockLocked() (job, bool) {
	total := 0
	for _, n := range p.mu.width {
		total += n
	}
	if total >= p.mostAhead() {
		return job{}, false
	}
	for _, f := range p.mu.ahead {
		for i := f.next; i < len(f.blocks); i++ {
			b := &f.blocks[i]
			if !b.started && p.mu.width[b.lane] < max(p.mu.governor.Width(b.lane), 1) {
				p.mu.passed = 0
				return p.startBlockLocked(f, i-f.next), true
			}
		}
	}
	return job{}, false
}

// startBlockLocked hands out the block that lies skip behind the first that is
// not started.
func (p *Prefetcher) startBlockLocked(f *flight, skip int) job {
	b := &f.blocks[f.next+skip]
	b.started = true
	for f.next < len(f.blocks) && f.blocks[f.next].started {
		f.next++
	}
	f.left--
	f.busy++
	p.mu.flying++
	if f.class == Demand {
		b.urgent = true
		p.mu.pace.lanes[b.lane].begin(time.Now())
	} else {
		p.mu.width[b.lane]++
	}
	if f.left == 0 {
		p.mu.demand = without(p.mu.demand, f)
		p.mu.ahead = without(p.mu.ahead, f)
		if f.class != Demand {
			p.wakeLocked(p.mu.queue.Len(Near) + p.mu.queue.Len(Far)) // the next may begin
		}
	}
	return job{f: f, block: b}
}

// open finds the expert's place in the source and a slot for it, and starts to
// read.
func (p *Prefetcher) open(f *flight, class Class) {
	if err := p.locate(f); err != nil {
		p.endOpening(class)
		p.fail(f, err)
		return
	}
	seen := p.epoch.Load()
	want, own := experts.Demand, 0.0
	if class != Demand {
		want = experts.Speculative
		own = p.opt.Margin * p.expect(f)
	}
	fill, err := p.cache.Begin(f.id, want, own)
	p.endOpening(class)
	switch err {
	case nil:
		f.fill, f.held = fill, true
		if int64(len(fill.Bytes())) < f.place.Bytes {
			p.fail(f, checkPlacement(&f.place, int64(len(fill.Bytes())), len(p.lanes)))
			return
		}
		p.startReading(f, class)
	case experts.ErrResident:
		p.alreadyThere(f)
	case experts.ErrNoRoom, experts.ErrFilling, experts.ErrNotWorth:
		p.refused(f, class, seen)
	default:
		p.fail(f, err)
	}
}

// expect is the forecast's own expectation of the next use, at this moment.
func (p *Prefetcher) expect(f *flight) float64 {
	p.mu.Lock()
	step := p.mu.step
	p.mu.Unlock()
	return Candidate{P: f.item.P, NeededBy: f.item.NeededBy}.Expect(step, p.shape.Layers)
}

func (p *Prefetcher) endOpening(class Class) {
	if class == Demand {
		return
	}
	p.mu.Lock()
	p.mu.opening--
	p.mu.Unlock()
}

// startReading puts the flight's blocks up for the workers.
func (p *Prefetcher) startReading(f *flight, class Class) {
	f.blocks = cutBlocks(f.blocks[:0], f.place.Reads, p.opt.Block)
	f.began = time.Now()
	p.mu.Lock()
	if p.mu.closed {
		p.mu.Unlock()
		p.abort(f.fill)
		return
	}
	p.mu.pace.all.begin(f.began)
	if class == Demand {
		p.count.demandReads.Add(1)
		p.count.demandBytes.Add(f.place.Bytes)
	} else {
		p.count.issued.Add(1)
		p.count.speculativeBytes.Add(f.place.Bytes)
		p.mu.governor.Issued(f.item.NeededBy)
		p.mu.lapses.Begun(f.id, f.item.NeededBy)
		if f.class == Demand { // since it was taken
			p.lateLocked(f)
		}
	}
	empty := len(f.blocks) == 0
	if empty {
		f.state = flightSettling
	} else {
		p.readingLocked(f)
	}
	p.mu.Unlock()
	if empty {
		p.settle(f)
	}
}

// readingLocked puts all blocks of the flight up.
func (p *Prefetcher) readingLocked(f *flight) {
	f.state = flightReading
	f.next, f.left = 0, len(f.blocks)
	for i := range f.blocks {
		b := &f.blocks[i]
		b.started, b.ended, b.urgent = false, false, false
	}
	if f.class == Demand {
		p.mu.demand = append(p.mu.demand, f)
	} else {
		p.mu.ahead = append(p.mu.ahead, f)
	}
	// The worker that calls takes one block itself.
	p.wakeLocked(f.left - 1)
}

// read does one block. The worker that ends the last one settles the flight.
func (p *Prefetcher) read(f *flight, b *block) {
	err := p.readBlock(f, b)
	p.mu.Lock()
	f.busy--
	p.mu.flying--
	b.ended = true
	if b.urgent {
		p.mu.pace.lanes[b.lane].end(time.Now())
	} else {
		p.mu.width[b.lane]--
	}
	if err != nil && f.err == nil {
		f.err = err
		f.left = 0 // the rest is not worth reading
		p.mu.demand = without(p.mu.demand, f)
		p.mu.ahead = without(p.mu.ahead, f)
	}
	last := f.busy == 0 && (f.left == 0 || p.mu.closed)
	if last {
		f.state = flightSettling
	}
	p.mu.Unlock()
	if last {
		p.settle(f)
	}
}
