package prefetcher

import "outrider/experts"

// twin is a second buffer of a flight into which some of its blocks are read from
// their other place, because the first read is overdue or brought wrong bytes.
// Whichever is whole first is published; the other becomes an orphan. Guarded by
// Prefetcher.mu.
type twin struct {
	stray  experts.Stray
	blocks []*block
	left   int // blocks not begun
	busy   int // blocks being read
}

func (t *twin) done() bool { return t.left == 0 && t.busy == 0 }

// restEnded reports whether every block is there, or has a twin.
func (f *flight) restEnded() bool {
	for i := range f.blocks {
		if b := &f.blocks[i]; b.state != blockEnded && !b.hedged {
			return false
		}
	}
	return true
}

// unhedge forgets that blocks were to be read elsewhere.
func (f *flight) unhedge() {
	for i := range f.blocks {
		f.blocks[i].hedged = false
	}
}

// twinLostLocked is what becomes of a flight when its twin has come to nothing: what failed
// counting on that has failed.
func (p *Prefetcher) twinLostLocked(f *flight) experts.Stray {
	stray := p.dropTwinLocked(f)
	f.unhedge()
	if f.covered != nil && f.err == nil {
		f.err = f.covered
		p.dropWaitingLocked(f)
	}
	return stray
}

// twinBlockLocked begins to read a block into the twin, from its other place if it
// has one.
func (p *Prefetcher) twinBlockLocked(f *flight, b *block) {
	t := &block{f: f, id: f.id, spot: b.spot, at: b.at, bytes: b.bytes, need: b.need, twin: true}
	if b.twice {
		t.spot = b.other
	}
	t.buf = f.twin.stray.Bytes()[b.at : b.at+b.bytes]
	b.hedged = true
	p.mu.hedgedBytes += b.bytes
	p.count.hedges.Add(1)
	f.twin.blocks = append(f.twin.blocks, t)
	f.twin.left++
	p.putLocked(t, true)
}

// endTwinBlock notes that a block of a twin is there, or failed.
func (p *Prefetcher) endTwinBlock(b *block, err error) {
	var stray experts.Stray
	next := turnNone
	f := b.f
	p.mu.Lock()
	b.state = blockEnded
	if b.doomed != nil { // just now
		stray = b.doomed.endLocked()
	} else {
		f.twin.busy--
		if err != nil || p.mu.closed {
			stray = p.twinLostLocked(f)
		}
		next = p.turnLocked(f)
	}
	p.mu.Unlock()
	stray.Release()
	p.goOn(f, next)
}

// dropTwinLocked ends a flight's twin, if it has one. What is returned is to be
// released without the lock.
func (p *Prefetcher) dropTwinLocked(f *flight) (s experts.Stray) {
	t := f.twin
	if t == nil {
		return s
	}
	f.twin = nil
	o := &orphan{stray: t.stray, owned: true, busy: t.busy}
	for _, b := range t.blocks {
		switch b.state {
		case blockWaiting:
			p.lanes[b.lane].take(b)
			b.state = blockEnded
		case blockReading:
			b.doomed = o
		}
	}
	return o.freeLocked()
}

// settleTwin makes the twin the flight's buffer: the blocks that only the first
// buffer has are copied, the one copy of weights in this package.
func (p *Prefetcher) settleTwin(f *flight) {
	p.mu.Lock()
	t, all := f.twin, uint64(0)
	for i := range f.blocks {
		if b := &f.blocks[i]; b.hedged {
			all |= f.partsOf(b)
		}
	}
	ready := f.ready &^ all
	p.mu.Unlock()
	slot := t.stray.Bytes()
	for i := range f.blocks {
		if b := &f.blocks[i]; !b.hedged {
			copy(slot[b.at:b.at+b.bytes], b.buf)
		}
	}
	var bad *ChecksumError
	for i := range f.place.Parts {
		if ready&(1<<i) == 0 && bad == nil {
			bad = p.verifyPart(f, slot, i)
		}
	}
	if bad == nil && p.exchange(f) {
		p.publish(f)
		return
	}
	p.mu.Lock()
	stray := p.twinLostLocked(f)
	f.state = flightReading
	next := p.turnLocked(f)
	p.mu.Unlock()
	stray.Release()
	p.goOn(f, next)
}

// exchange makes the twin's memory the fill's and an orphan of what the fill had.
func (p *Prefetcher) exchange(f *flight) bool {
	fill, old, err := f.fill.Swap(f.twin.stray)
	if err != nil {
		if p.log != nil {
			p.log.Error("prefetcher: swap", "id", f.id.String(), "error", err)
		}
		return false
	}
	p.count.hedgesWon.Add(1)
	p.mu.Lock()
	f.fill = fill
	o := f.doomLocked()
	f.twin, f.bad, f.covered = nil, nil, nil
	p.mu.Unlock()
	p.adopt(o, old)
	return true
}

// partsOf are the parts that a block holds bytes of, by bit.
func (f *flight) partsOf(b *block) (parts uint64) {
	for i, part := range f.place.Parts {
		if b.touches(part) {
			parts |= 1 << i
		}
	}
	return parts
}

// readElsewhere reads a flight again into a second buffer, since parts of the first
// are held by somebody and must not change.
func (p *Prefetcher) readElsewhere(f *flight) bool {
	stray, err := f.fill.Spare()
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		f.twin = &twin{stray: stray} // dropped with the flight
		return false
	}
	f.state, f.ready, f.twinned = flightReading, 0, true
	f.twin = &twin{stray: stray}
	for i := range f.blocks {
		p.twinBlockLocked(f, &f.blocks[i])
	}
	return true
}
