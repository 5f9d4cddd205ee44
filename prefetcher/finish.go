package prefetcher

import (
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"outrider/layout"
)

// PartWaiter is a Waiter that is also told of projections as they arrive, before
// the rest of their expert.
type PartWaiter interface {
	Waiter
	// PartArrived hands over projection i of a demanded expert, checked. Data is
	// not to be written. The hold keeps it valid until Arrived, which follows
	// unless the demand is taken back (Cancel); after that hold and lease together
	// do, or the hold alone where Arrived brought an error. So a hold is to be
	// released exactly once: before Cancel, or with the lease. Called as Arrived
	// is.
	PartArrived(tag, i int, data []byte, hold Hold)
}

// landed notes that the op's request is over.
func (p *Prefetcher) landed(l *lane, o *op) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, x := range l.flying {
		if x == o {
			l.flying = without(l.flying, i)
			break
		}
	}
	l.reads++
	l.bytes += o.bytes
	l.ended = now
	l.silent, p.mu.allStuck = false, false
	p.mu.flying--
	if !o.stuck {
		l.moving -= o.bytes
		l.rate.leave(now)
	}
	failed := false
	for _, err := range o.errs {
		failed = failed || err != nil
	}
	if !failed && !o.stuck {
		l.rate.read(o.bytes, now.Sub(o.began), o.expected, o.first)
	}
	if o.urgent { // maybe only since a promotion
		p.mu.pace.lanes[l.index].end(now)
		if len(l.flying) == l.width { // it was the last: who waited for it goes on
			for range len(l.ahead) {
				if !l.several { // else the caller goes on
					l.rouse()
				}
			}
		}
	} else {
		l.width--
	}
	if l.several && o.summed && len(l.demand) > 0 {
		l.rouse() // checking takes the caller a while
	}
}

// endBlock notes that a block is there, or failed. The worker that ends the last one
// settles the flight.
func (p *Prefetcher) endBlock(b *block, err error) {
	p.mu.Lock()
	if b.doomed != nil {
		stray := b.doomed.endLocked()
		p.mu.Unlock()
		stray.Release()
		return
	}
	if b.twin {
		p.mu.Unlock()
		p.endTwinBlock(b, err)
		return
	}
	f, slot := b.f, b.f.fill.Bytes()
	switch {
	case err == nil || f.err != nil:
	case f.twin != nil && b.hedged: // it is being read elsewhere
		f.covered = err
	default:
		f.err = err
		p.dropWaitingLocked(f) // the rest is not worth reading
	}
	var ready uint64
	if err == nil && f.err == nil && !p.mu.closed {
		ready = f.endParts(b)
	}
	news := ready != 0 || f.joined
	f.joined = false
	p.mu.Unlock()
	if news {
		p.checkParts(f, slot, ready)
	}
	p.leave(b)
}

// checkParts checks parts that are complete and tells those who wait for them.
func (p *Prefetcher) checkParts(f *flight, slot []byte, ready uint64) {
	for i := range f.place.Parts {
		if ready&(1<<i) != 0 {
			p.checkPart(f, slot, i)
		}
	}
	p.tellParts(f, slot)
}

// leave ends the work on a block, and on its flight if it was the last.
func (p *Prefetcher) leave(b *block) {
	p.mu.Lock()
	b.state = blockEnded
	if b.doomed != nil { // while it was checked
		stray := b.doomed.endLocked()
		p.mu.Unlock()
		stray.Release()
		return
	}
	f := b.f
	f.busy--
	next := p.turnLocked(f)
	p.mu.Unlock()
	p.goOn(f, next)
}

// turn is what is to be done next with a flight.
type turn uint8

const (
	turnNone   turn = iota // others are at work on it
	turnSettle             // all of its blocks are there, or one has failed
	turnTwin               // its twin is whole
)

// goOn does what turnLocked said.
func (p *Prefetcher) goOn(f *flight, t turn) {
	switch t {
	case turnSettle:
		p.settle(f)
	case turnTwin:
		p.settleTwin(f)
	}
}

// turnLocked says what is to be done with a flight of which something ended, and
// makes the caller the one who does it.
func (p *Prefetcher) turnLocked(f *flight) turn {
	switch {
	case f.state != flightReading:
	case p.overLocked(f) && (f.twin == nil || f.err != nil || f.bad == nil && f.covered == nil || p.mu.closed):
		f.state = flightSettling
		return turnSettle
	case f.twin != nil && f.err == nil && f.twin.done() && f.restEnded():
		f.state = flightSettling
		return turnTwin
	}
	return turnNone
}

// overLocked reports whether nothing of the flight is being read or waits to be.
func (p *Prefetcher) overLocked(f *flight) bool {
	return f.busy == 0 && (f.left == 0 || p.mu.closed)
}

// dropWaitingLocked takes the flight's blocks out of the lines.
func (p *Prefetcher) dropWaitingLocked(f *flight) {
	for i := range f.blocks {
		if b := &f.blocks[i]; b.state == blockWaiting {
			p.lanes[b.lane].take(b)
			b.state = blockEnded
		}
	}
	f.left = 0
}

// endParts counts a block that has arrived, and returns the parts that are
// complete with it.
func (f *flight) endParts(b *block) (ready uint64) {
	for i, part := range f.place.Parts {
		if b.touches(part) {
			if f.parts[i]--; f.parts[i] == 0 {
				ready |= 1 << i
			}
		}
	}
	return ready
}

// checkPart compares a part's checksum, if it has one, and marks it as ready.
func (p *Prefetcher) checkPart(f *flight, slot []byte, i int) {
	e := p.verifyPart(f, slot, i)
	p.mu.Lock()
	defer p.mu.Unlock()
	if e != nil {
		f.bad = e
		return
	}
	f.ready |= 1 << i
}

// verifyPart compares the checksum of a part in a slot.
func (p *Prefetcher) verifyPart(f *flight, slot []byte, i int) *ChecksumError {
	part := f.place.Parts[i]
	if !part.Summed {
		return nil
	}
	got := crc32.Checksum(slot[part.At:part.At+part.Bytes], p.crcTable)
	if got == part.Sum {
		return nil
	}
	p.count.checksumErrors.Add(1)
	return p.checksumError(f, i, got)
}

// checksumError names the place at which part i starts.
func (p *Prefetcher) checksumError(f *flight, i int, got uint32) *ChecksumError {
	part := f.place.Parts[i]
	e := &ChecksumError{ID: f.id, Projection: fmt.Sprintf("#%d", i), Got: got, Want: part.Sum}
	if record := p.opt.Source.Record(int(f.id.Layer)); i < len(record) {
		e.Projection = record[i].Name
	}
	for _, r := range f.place.Reads {
		if part.At >= r.At && part.At < r.At+r.Bytes {
			e.Path, e.Offset = p.lanes[r.Lane].Path, r.Offset+part.At-r.At
		}
	}
	return e
}

// tellParts tells those who wait for parts of what is ready and new to them.
func (p *Prefetcher) tellParts(f *flight, slot []byte) {
	type letter struct {
		w    PartWaiter
		tag  int
		news uint64
		hold Hold
	}
	var letters []letter
	p.mu.Lock()
	for i := range f.waiters {
		wt := &f.waiters[i]
		news := f.ready &^ wt.told
		if wt.parts == nil || news == 0 || f.state != flightReading || p.mu.closed {
			continue
		}
		if f.hold == nil {
			f.hold = &orphan{}
		}
		wt.told |= news
		for n := news; n != 0; n &= n - 1 {
			f.hold.holds++
		}
		letters = append(letters, letter{wt.parts, wt.tag, news, Hold{p, f.hold}})
	}
	p.mu.Unlock()
	for _, l := range letters {
		for i, part := range f.place.Parts {
			if l.news&(1<<i) != 0 {
				l.w.PartArrived(l.tag, i, slot[part.At:part.At+part.Bytes:part.At+part.Bytes], l.hold)
			}
		}
	}
}

// startReading puts the flight's blocks up for the workers.
func (p *Prefetcher) startReading(f *flight, class Class) {
	size := p.opt.Block
	if class != Demand {
		size = aheadBlock(f.place.Bytes, size, p.unit)
	}
	f.blocks = cutBlocks(f.blocks[:0], f, f.place.Reads, size)
	f.countParts()
	f.summed = slices.ContainsFunc(f.place.Parts, func(part layout.Part) bool { return part.Summed })
	f.began = time.Now()
	p.mu.Lock()
	p.endOpeningLocked(class)
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
	if class == Demand {
		p.besideLocked(f)
	}
	p.readingLocked(f, nil)
	empty := len(f.blocks) == 0
	if empty {
		f.state = flightSettling
	}
	p.mu.Unlock()
	if empty {
		for i := range f.place.Parts {
			p.checkPart(f, f.fill.Bytes(), i)
		}
		p.settle(f)
	}
}

// readingLocked puts blocks of the flight up: those that again names, or all.
func (p *Prefetcher) readingLocked(f *flight, again func(*block) bool) {
	f.state = flightReading
	slot := f.fill.Bytes()
	for i := range f.blocks {
		b := &f.blocks[i]
		if again != nil && !again(b) {
			continue
		}
		b.buf = slot[b.at : b.at+b.bytes]
		f.left++
		p.putLocked(b, false)
	}
}

// besideLocked notes what a demand finds on its lanes, and tells the governor if
// speculation has left it no worker.
func (p *Prefetcher) besideLocked(f *flight) {
	f.before = f.place.Bytes
	for _, l := range p.lanes {
		f.before += l.demanded()
	}
	full, speed, latency, seen := false, 0.0, 0.0, -1
	for i := range f.blocks {
		l := p.lanes[f.blocks[i].lane]
		if l.index > seen { // blocks of the lanes alternate
			seen = l.index
			speed, latency = speed+l.rate.peak, max(latency, l.rate.latency)
		}
		if l.width > 0 {
			f.beside = true
			full = full || len(l.flying) >= l.depth
		}
	}
	if speed > 0 {
		f.ideal = latency + float64(f.before)/speed
	}
	if full {
		p.mu.governor.DemandWait()
	}
}

// settle ends a flight whose blocks have all been read, or given up: it publishes
// them and tells the waiters.
func (p *Prefetcher) settle(f *flight) {
	if f.err == nil && f.bad != nil && !p.isClosed() {
		if p.readAgain(f) {
			return
		}
		f.err = f.bad
	}
	if f.err != nil {
		p.endReading(f)
		p.fail(f, f.err)
		return
	}
	p.publish(f)
}

// readAgain reads once more, from the other place where there is one, the blocks
// of parts whose checksum was wrong. Parts that somebody holds already must not
// change, so that then all is read into a second buffer.
func (p *Prefetcher) readAgain(f *flight) bool {
	if f.again {
		return false
	}
	f.again = true
	p.count.retries.Add(1)
	if p.heldParts(f) {
		return p.readElsewhere(f)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return false
	}
	f.bad = nil
	for i := range f.blocks {
		if b := &f.blocks[i]; f.inBadPart(b) {
			b.state = blockWaiting
			p.lanes[b.lane].rate.failed()
			if b.twice { // there, and nowhere else
				b.swap()
				b.twice = false
			}
		}
	}
	again := func(b *block) bool { return b.state == blockWaiting }
	for i, part := range f.place.Parts {
		for j := range f.blocks {
			if b := &f.blocks[j]; again(b) && b.touches(part) {
				f.parts[i]++
				f.ready &^= 1 << i
			}
		}
	}
	p.readingLocked(f, again)
	return true
}

// inBadPart reports whether the block holds bytes of a part that is not ready.
func (f *flight) inBadPart(b *block) bool {
	for i, part := range f.place.Parts {
		if f.ready&(1<<i) == 0 && b.touches(part) {
			return true
		}
	}
	return false
}

func (p *Prefetcher) heldParts(f *flight) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return f.hold != nil && f.hold.holds > 0
}
