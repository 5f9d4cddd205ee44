package prefetcher

import "time"

// job is what a worker does next.
type job struct {
	kind  jobKind
	f     *flight // to be opened as class
	class Class
	o     *op // to be read, or tried again
	chore chore
}

type jobKind uint8

const (
	jobOpen  jobKind = iota
	jobRead          // begin the op
	jobWait          // for the worker's requests
	jobAgain         // the second try of an op that another worker has left
	jobChore
)

// next waits for a job. There is none once the prefetcher is closed and the worker
// carries nothing.
func (p *Prefetcher) next(w *worker) (job, bool) {
	l := w.lane
	p.mu.Lock()
	defer p.mu.Unlock()
	l.spare = append(l.spare, w.done...)
	clear(w.done)
	w.done = w.done[:0]
	for {
		w.comesLocked(true)
		w.leaves = false
		j, ok := p.takeLocked(w)
		if ok {
			// Whoever carries requests out comes back at once to look for more.
			w.comesLocked(j.kind == jobOpen || j.kind == jobRead && w.reader != nil)
			return j, true
		}
		w.comesLocked(false)
		if w.carried > 0 {
			p.passOnLocked(w)
			return job{kind: jobWait}, true
		}
		if p.mu.closed {
			return job{}, false
		}
		p.passOnLocked(w)
		l.idle++
		l.wake.Wait() // whoever wakes counts the worker as coming
		w.coming = true
	}
}

// comesLocked notes whether the worker will look for work before it waits.
func (w *worker) comesLocked(coming bool) {
	switch {
	case coming && !w.coming:
		w.lane.coming++
	case !coming && w.coming:
		w.lane.coming--
	}
	w.coming = coming
}

// passOnLocked wakes another worker for what this one, which is about to wait, leaves:
// what only one that carries nothing may do, its share of what is to be checked, or,
// where its lane can read no more, what other lanes can.
func (p *Prefetcher) passOnLocked(w *worker) {
	l := w.lane
	switch {
	case !l.several:
	case len(l.again) > 0 || len(p.mu.chores) > 0 || w.leaves:
		l.rouse()
	case l.full() && p.mu.queue.Len(Demand)+p.mu.queue.Len(Near)+p.mu.queue.Len(Far)+len(p.mu.parked) > 0:
		p.wakeLocked(1)
	}
}

// takeLocked picks the next job; the order is in doc.go. A lane reads no more than
// depth requests at once, and who carries requests leaves to others what may take long.
func (p *Prefetcher) takeLocked(w *worker) (job, bool) {
	l := w.lane
	if w.carried == 0 && len(l.again) > 0 {
		o := l.again[0]
		l.again = without(l.again, 0)
		return job{kind: jobAgain, o: o}, true
	}
	if p.mu.closed {
		return job{}, false
	}
	w.leaves = w.room == 0
	may := !w.leaves && !l.full()
	if may {
		if j, ok := p.takeReadLocked(w); ok {
			return j, true
		}
	}
	if w.carried == 0 {
		if c, ok := p.nextChoreLocked(); ok {
			return job{kind: jobChore, chore: c}, true
		}
	}
	if may && !w.leaves {
		return p.aheadBlockLocked(w)
	}
	return job{}, false
}

// takeReadLocked picks what leads to a read: a block of a demand, an expert to be opened.
func (p *Prefetcher) takeReadLocked(w *worker) (job, bool) {
	l := w.lane
	if l.passed >= p.opt.Patience {
		if j, ok := p.aheadBlockLocked(w); ok {
			return j, true
		}
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
		if w.leaves = b.f.summed && b.f.place.Bytes >= longCheck && w.carried > 0 && w.carried >= p.shareLocked(l, b.f); w.leaves {
			return job{}, false
		}
		if len(l.ahead) > 0 {
			l.passed++
		}
		return p.beginLocked(w, b), true
	}
	if f := p.unparkLocked(); f != nil {
		p.wakeLocked(len(p.mu.parked)) // there may be room for more than one
		return p.openingLocked(f, Demand), true
	}
	return p.queuedLocked(p.roomAheadLocked())
}

// shareLocked is how many requests one worker carries of those whose bytes are to be
// checked: that keeps a core busy, so that all of them should have some.
func (p *Prefetcher) shareLocked(l *lane, but *flight) int {
	all := len(l.flying) + 1 + p.othersLocked(l, but)
	cores := min(p.cores, l.depth)
	return (all + cores - 1) / cores
}

// moreToGatherLocked reports whether queued demands should be opened before a small
// block is read: they may be neighbours of it, and there is no place for them beside it.
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
	return job{kind: jobOpen, f: f, class: class}
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
func (p *Prefetcher) aheadBlockLocked(w *worker) (job, bool) {
	l := w.lane
	if len(l.ahead) == 0 || l.width >= p.widthLocked(l) {
		return job{}, false
	}
	if l.passed < p.opt.Patience && (len(l.flying) > l.width || p.mu.demandOpening > 0) && l.rate.bulky(l.ahead[0].f.place.Bytes) {
		return job{}, false
	}
	l.passed = 0
	return p.beginLocked(w, l.ahead[0]), true
}

// beginLocked makes an op of a block and of neighbours of it, and notes that
// they are being read.
func (p *Prefetcher) beginLocked(w *worker, b *block) job {
	l, o, now := w.lane, w.lane.newOp(), time.Now()
	urgent := b.f.class == Demand
	o.reset(l, b, urgent, now)
	p.gatherLocked(l, o)
	o.expected = l.rate.expect(l.moving + o.bytes)
	for _, b := range o.blocks {
		l.take(b)
		b.state = blockReading
		f := b.f
		o.summed = o.summed || f.summed
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
	return job{kind: jobRead, o: o}
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

// full reports whether the lane reads as much at once as it may.
func (l *lane) full() bool { return len(l.flying) >= l.depth }

// free is how many requests more the lane may read at once, beside one that is begun.
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
	// longCheck is the size of a record from which on checking it takes longer than
	// waking another worker, so that all cores should share it. Between the ends of
	// smaller ones there is time for it.
	longCheck = 1 << 20
	// smallBlock is the size from which on a request costs little beside its bytes.
	smallBlock = 256 << 10
	// lookForNeighbours bounds how far a line is searched.
	lookForNeighbours = 64
)
