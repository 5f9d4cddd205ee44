package prefetcher

import "outrider/experts"

// orphan is a buffer that its flight has done with, while something may still
// write into it (a read that is stuck) or somebody still reads parts of it. It stays
// charged to the budget until both are over. Guarded by Prefetcher.mu.
type orphan struct {
	stray experts.Stray
	owned bool // stray is set: the flight is gone
	busy  int  // blocks being read into it
	holds int  // holds of parts of it
}

// endLocked counts a block that has ended.
func (o *orphan) endLocked() experts.Stray {
	o.busy--
	return o.freeLocked()
}

// freeLocked gives the stray out if nothing needs it any more: to be released once
// Prefetcher.mu is not held.
func (o *orphan) freeLocked() (s experts.Stray) {
	if o.owned && o.busy == 0 && o.holds == 0 {
		s, o.owned = o.stray, false
	}
	return s
}

// Hold keeps the bytes of a part valid that were handed over by PartArrived.
type Hold struct {
	p *Prefetcher
	o *orphan
}

// Release ends the hold. Call it once.
func (h Hold) Release() {
	if h.o == nil {
		return
	}
	h.p.mu.Lock()
	h.o.holds--
	stray := h.o.freeLocked()
	h.p.mu.Unlock()
	stray.Release()
}

// doomLocked makes an orphan of the flight's buffer: whoever is reading into it is
// told so. The flight's own record of its blocks goes with it.
func (f *flight) doomLocked() *orphan {
	o := f.hold
	if o == nil {
		o = &orphan{}
	}
	for i := range f.blocks {
		if b := &f.blocks[i]; b.state == blockReading {
			b.doomed = o
		}
	}
	o.busy = f.busy
	f.lost = f.lost || f.busy > 0
	f.hold, f.busy, f.blocks = nil, 0, nil
	return o
}

// adopt gives an orphan its memory.
func (p *Prefetcher) adopt(o *orphan, stray experts.Stray) {
	p.mu.Lock()
	o.stray, o.owned = stray, true
	free := o.freeLocked()
	p.mu.Unlock()
	free.Release()
}

// giveBack ends the fill of a flight that failed and is nowhere else any more: at
// once, or when nobody writes into it or reads from it.
func (p *Prefetcher) giveBack(f *flight) {
	p.mu.Lock()
	twin := p.dropTwinLocked(f)
	inUse := f.busy > 0 || f.hold != nil && f.hold.holds > 0
	var o *orphan
	if inUse {
		o = f.doomLocked()
	}
	p.mu.Unlock()
	twin.Release()
	if !inUse {
		p.abort(f.fill)
		return
	}
	stray, err := f.fill.Abandon()
	if err != nil && p.log != nil {
		p.log.Error("prefetcher: abandon", "id", f.id.String(), "error", err)
	}
	p.adopt(o, stray)
}
