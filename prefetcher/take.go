package prefetcher

import "time"

// job is what a worker does next: open the flight, or read.
type job struct {
	f       *flight // to be opened as class, or nil
	class   Class
	read    bool // the worker's op is filled
	chore   chore
	isChore bool
}

// work is one worker of a lane. It ends when the prefetcher is closed.
func (p *Prefetcher) work(l *lane) error {
	o := &op{}
	for {
		j, ok := p.next(l, o)
		switch {
		case !ok:
			return nil
		case j.read:
			p.read(l, o)
		case j.isChore:
			p.do(j.chore)
		default:
			p.open(j.f, j.class)
		}
	}
}

// next waits for a job.
func (p *Prefetcher) next(l *lane, o *op) (job, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.mu.closed {
		if j, ok := p.takeLocked(l, o); ok {
			return j, true
		}
		l.idle++
		l.wake.Wait() // whoever wakes counts down
	}
	return job{}, false
}

// takeLocked picks the next job; the order is in doc.go.
func (p *Prefetcher) takeLocked(l *lane, o *op) (job, bool) {
	if l.passed >= p.opt.Patience && p.aheadBlockLocked(l, o) {
		return job{read: true}, true
	}
	b := l.firstDemand()
	if b != nil && p.moreToGatherLocked(l, b) {
		if j, ok := p.queuedLocked(false); ok {
			return j, true
		}
	}
	if b == nil {
		b = p.stealLocked(l)
	}
	if b != nil {
		if len(l.ahead) > 0 {
			l.passed++
		}
		p.beginLocked(l, o, b)
		return job{read: true}, true
	}
	if f := p.unparkLocked(); f != nil {
		p.wakeLocked(len(p.mu.parked)) // there may be room for more than one
		return p.openingLocked(f, Demand), true
	}
	if j, ok := p.queuedLocked(p.roomAheadLocked()); ok {
		return j, true
	}
	if c, ok := p.nextChoreLocked(); ok {
		return job{chore: c, isChore: true}, true
	}
	return job{read: true}, p.aheadBlockLocked(l, o)
}

// moreToGatherLocked reports whether queued demands should be opened before a small
// block is read: they may be neighbours of it, and no other worker is free for them.
func (p *Prefetcher) moreToGatherLocked(l *lane, b *block) bool {
	return b.bytes < smallBlock && len(l.demand) < lookForNeighbours/4 && p.mu.queue.Len(Demand) > l.free()
}

// firstDemand is the demand block that goes next, nil if none waits.
func (l *lane) firstDemand() *block {
	if len(l.demand) == 0 {
		return nil
	}
	return l.demand[0]
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
	} else {
		p.mu.demandOpening++
	}
	return job{f: f, class: class}
}

// roomAheadLocked reports whether one more speculative read may begin: there are
// workers for it beside what was begun and waits for them.
func (p *Prefetcher) roomAheadLocked() bool {
	if p.opt.NoSpeculation || !p.mu.governor.Allow() {
		return false
	}
	room := -p.mu.opening
	for _, l := range p.lanes {
		room += min(p.mu.governor.Width(l.index), p.widthLocked(l)) - l.width - len(l.ahead)
	}
	return room > 0
}

// widthLocked is how many speculative requests the lane may work on at once. They are
// bounded by what they cost demands only where the source never rests: else it is
// best to have them done soon, and nothing would be gained by doing fewer at a time.
func (p *Prefetcher) widthLocked(l *lane) int {
	most := l.mostAhead()
	if p.mu.pace.saturated() {
		most = min(most, p.mu.crowd.width())
	}
	return min(max(p.mu.governor.Width(l.index), 1), most)
}

// mostAhead is how many of the lane's workers may read ahead at once: one is left
// to demands, if there is more than one.
func (l *lane) mostAhead() int { return max(l.depth-1, 1) }

// aheadBlockLocked begins a block of a speculative read under way. Once begun it
// holds a slot, so it goes on, one block a lane, even when the governor would not
// begin another. While the lane reads for a demand, or is about to, large records
// wait, up to Options.Patience: their bytes would slow the demand down. Small ones cost
// a drive little but time to begin, which passes for both at once.
func (p *Prefetcher) aheadBlockLocked(l *lane, o *op) bool {
	if len(l.ahead) == 0 || l.width >= p.widthLocked(l) {
		return false
	}
	if l.passed < p.opt.Patience && (len(l.flying) > l.width || p.mu.demandOpening > 0) && l.rate.bulky(l.ahead[0].f.place.Bytes) {
		return false
	}
	l.passed = 0
	p.beginLocked(l, o, l.ahead[0])
	return true
}

// beginLocked makes an op of a block and of neighbours of it, and notes that
// they are being read.
func (p *Prefetcher) beginLocked(l *lane, o *op, b *block) {
	now := time.Now()
	urgent := b.f.class == Demand
	o.reset(l, b, urgent, now)
	p.gatherLocked(l, o)
	o.expected = l.rate.expect(l.moving + o.bytes)
	for _, b := range o.blocks {
		l.take(b)
		b.state = blockReading
		f := b.f
		if !b.twin {
			f.left--
			f.busy++
		} else {
			f.twin.left--
			f.twin.busy++
		}
	}
	if len(l.flying) == 0 {
		l.ended, o.first = now, true
	}
	l.flying = append(l.flying, o)
	l.moving += o.bytes
	p.mu.flying++
	l.rate.begin(now)
	if urgent {
		p.mu.pace.lanes[l.index].begin(now)
	} else {
		l.width++
		l.besideAll()
		if len(l.ahead) == 0 {
			p.wakeLocked(p.mu.queue.Len(Near) + p.mu.queue.Len(Far)) // the next may begin
		}
	}
	p.watchLocked(o)
}

// besideAll notes at the demands that are being read that a forecast is read beside
// them.
func (l *lane) besideAll() {
	for _, o := range l.flying {
		if !o.urgent {
			continue
		}
		for _, b := range o.blocks {
			if b.doomed == nil {
				b.f.beside = true
			}
		}
	}
}

// gatherLocked adds to an op the waiting blocks that go on where it ends, of any
// flight, as far as one request should go. It leaves demands to the lane's other free
// workers, a flight each. Speculative requests stay small where they are in the way of
// demands and the source never rests.
func (p *Prefetcher) gatherLocked(l *lane, o *op) {
	line, most, left := l.ahead, p.opt.Block, lookForNeighbours
	switch {
	case o.urgent:
		line, most = l.demand, p.opt.Request
		left = p.othersLocked(l, o.blocks[0].f) - l.free()
	case p.mu.pace.saturated() && !p.mu.crowd.open():
		return
	}
	if len(line) > lookForNeighbours {
		line = line[:lookForNeighbours]
	}
	for more := left >= 0; more; {
		more = false
		for _, b := range line {
			if !o.follows(b, most, l.gap) {
				continue
			}
			if !o.reads(b.f) {
				if left == 0 {
					return
				}
				left--
			}
			o.add(b)
			more = true
		}
	}
}

// free is how many workers of the lane, beside one that asks, are not reading.
func (l *lane) free() int { return l.depth - len(l.flying) - 1 }

// othersLocked counts the demands, beside one, that wait for the lane or to be opened.
func (p *Prefetcher) othersLocked(l *lane, but *flight) int {
	n, last := p.mu.queue.Len(Demand), but
	for _, b := range l.demand {
		if b.f != last && b.f != but { // blocks of one flight lie side by side
			n, last = n+1, b.f
		}
	}
	return n
}

const (
	// smallBlock is the size from which on a request costs little beside its bytes.
	smallBlock = 256 << 10
	// lookForNeighbours bounds how far a line is searched.
	lookForNeighbours = 64
)
