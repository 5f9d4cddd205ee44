package prefetcher

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"outrider/experts"
)

// hedgeShare is the largest share of all bytes read that is read twice because the
// first read is overdue.
const hedgeShare = 0.05

// watch is the goroutine that looks after reads that take too long. It ends when
// the prefetcher is closed.
func (p *Prefetcher) watch() error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		strays := p.parked.Load() > 0 && p.cache.Stats().Strays > 0
		p.mu.Lock()
		if p.mu.closed {
			p.mu.Unlock()
			return nil
		}
		now := time.Now()
		hedge, lost := p.overdueLocked(now)
		lost = p.loseParkedLocked(now, strays, lost)
		wait := time.Hour
		if !p.mu.watchAt.IsZero() {
			wait = p.mu.watchAt.Sub(now)
		}
		p.mu.Unlock()
		for _, f := range hedge {
			p.hedge(f)
		}
		for _, f := range lost {
			if f.held {
				p.endReading(f)
			}
			p.fail(f, f.err)
		}
		if len(hedge)+len(lost) > 0 {
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-p.poke:
		}
	}
}

// watchLocked sees that the watcher wakes when the op is overdue. Where nothing lies
// twice there is nothing to be done about that before the lane counts as silent.
func (p *Prefetcher) watchLocked(o *op) {
	o.due = o.began.Add(p.opt.SilentAfter)
	if p.copies && o.expected > 0 {
		o.due = o.began.Add(min(o.lane.rate.patience(o.expected), p.opt.SilentAfter))
	}
	p.wakeAtLocked(o.due)
}

// lookAtLocked has the watcher look at that time or before, and reports whether that is
// earlier than it would have.
func (p *Prefetcher) lookAtLocked(at time.Time) bool {
	if !p.mu.watchAt.IsZero() && !at.Before(p.mu.watchAt) {
		return false
	}
	p.mu.watchAt = at
	return true
}

// wakeAtLocked is lookAtLocked for whoever is not the watcher.
func (p *Prefetcher) wakeAtLocked(at time.Time) {
	if !p.lookAtLocked(at) {
		return
	}
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

// overdueLocked finds the flights of which a block is overdue: those to be read
// elsewhere, of which the caller is made a part (busy), and those to be given up,
// which are the caller's to fail. It sets the time of the next look.
func (p *Prefetcher) overdueLocked(now time.Time) (hedge, lost []*flight) {
	p.mu.watchAt = time.Time{}
	p.mu.allStuck = true
	for _, l := range p.lanes {
		stuck := 0
		for _, o := range l.flying {
			gone := !now.Before(o.began.Add(p.opt.SilentAfter))
			if gone {
				stuck++
			}
			if !now.Before(o.due) {
				o.due = o.began.Add(p.opt.SilentAfter)
				hedge = p.hedgeOpLocked(o, now, gone, hedge)
				if gone {
					lost = p.giveUpLocked(o, lost)
					o.due = now.Add(p.opt.SilentAfter)
				}
			}
			p.lookAtLocked(o.due)
		}
		l.silent = len(l.flying) > 0 && !now.Before(l.ended.Add(p.opt.SilentAfter))
		if l.silent && stuck == l.depth {
			lost = p.rerouteLocked(l, lost)
		} else {
			p.mu.allStuck = false
		}
	}
	if p.mu.allStuck {
		lost = p.loseQueuedLocked(lost)
	}
	return hedge, lost
}

// loseQueuedLocked fails the demands in the queue: no worker is left to open them.
func (p *Prefetcher) loseQueuedLocked(lost []*flight) []*flight {
	var paths []string
	for _, l := range p.lanes {
		paths = append(paths, l.Path)
	}
	for {
		it, ok := p.mu.queue.PopDemand()
		if !ok {
			return lost
		}
		lost = p.abandonLocked(p.mu.flights[it.ID], lost, fmt.Errorf("prefetcher: read %v: %w for %v from any lane (check the drives and their connections): %s",
			it.ID, ErrNoAnswer, p.opt.SilentAfter, strings.Join(paths, ", ")))
	}
}

// hedgeOpLocked notes that an op is overdue and has its blocks read a second time where
// they have another place, as far as there are bytes for that; a lane that has fallen
// silent is not asked about bytes.
func (p *Prefetcher) hedgeOpLocked(o *op, now time.Time, gone bool, hedge []*flight) []*flight {
	if !o.stuck {
		// Neither its time nor its bytes say anything about the lane's speed.
		o.stuck = true
		o.lane.moving -= o.bytes
		o.lane.rate.leave(now)
		o.lane.rate.compare(maxLate)
	}
	if !o.urgent && !gone {
		return hedge
	}
	for _, b := range o.blocks {
		f := b.f
		if b.doomed != nil || b.twin || !b.twice || b.hedged || f.state != flightReading || f.err != nil {
			continue
		}
		if !gone && !p.mayHedgeLocked() {
			continue
		}
		switch {
		case f.twin != nil:
			p.twinBlockLocked(f, b)
		case f.hedging: // its twin is being made
			b.hedged = true
		case !f.twinned:
			f.twinned, f.hedging, b.hedged = true, true, true
			f.busy++
			hedge = append(hedge, f)
		}
	}
	return hedge
}

// mayHedgeLocked keeps second reads to their share, with one block ahead of it.
func (p *Prefetcher) mayHedgeLocked() bool {
	all := p.count.demandBytes.Load() + p.count.speculativeBytes.Load()
	return float64(p.mu.hedgedBytes) <= hedgeShare*float64(all)
}

// hedge lends a flight a twin and begins to read its marked blocks into that.
// The caller is counted as busy with the flight.
func (p *Prefetcher) hedge(f *flight) {
	stray, err := f.fill.Spare()
	var free experts.Stray
	p.mu.Lock()
	f.busy--
	f.hedging = false
	if err == nil && !p.mu.closed && f.state == flightReading && f.err == nil {
		f.twin = &twin{stray: stray}
		for i := range f.blocks {
			if b := &f.blocks[i]; b.hedged && b.state == blockReading {
				p.twinBlockLocked(f, b)
			}
		}
	}
	if f.twin == nil || len(f.twin.blocks) == 0 { // no room, or all came meanwhile
		free, f.twin = stray, nil
		f.twinned = err != nil // else another block may be overdue later
		f.unhedge()
	}
	next := p.turnLocked(f)
	p.mu.Unlock()
	free.Release()
	p.goOn(f, next)
}

// giveUpLocked fails the flights of an op that has not answered for too long, if they
// are not read elsewhere.
func (p *Prefetcher) giveUpLocked(o *op, lost []*flight) []*flight {
	for _, b := range o.blocks {
		if b.doomed == nil && !b.twin && !b.hedged && b.f.state == flightReading {
			lost = p.loseLocked(b, lost)
		}
	}
	return lost
}

// rerouteLocked empties the lines of a lane none of whose workers answers: what lies
// elsewhere too is read there, the rest fails.
func (p *Prefetcher) rerouteLocked(l *lane, lost []*flight) []*flight {
	for _, b := range append(append([]*block(nil), l.demand...), l.ahead...) {
		switch {
		case b.state != blockWaiting || b.f.state != flightReading: // lost on the way
		case b.twice && !p.lanes[b.other.lane].silent:
			l.take(b)
			p.putLocked(b, false)
		case !b.twin:
			lost = p.loseLocked(b, lost)
		}
	}
	return lost
}

// loseParkedLocked fails demands that have waited for room for as long as a lane may
// be silent, if some of it is astray: nobody knows when that comes back. Without
// strays they wait for leases to end, which is their holders' affair.
func (p *Prefetcher) loseParkedLocked(now time.Time, strays bool, lost []*flight) []*flight {
	if len(p.mu.parked) == 0 {
		return lost
	}
	for _, f := range slices.Clone(p.mu.parked) {
		if !strays || len(f.waiters) == 0 || now.Before(f.waiters[0].asked.Add(p.opt.SilentAfter)) {
			continue
		}
		p.unparkOneLocked(f)
		lost = p.abandonLocked(f, lost, fmt.Errorf("prefetcher: read %v: %w: its memory is held by reads that a lane has not answered (check the drives and their connections, or raise the budget)",
			f.id, ErrNoAnswer))
	}
	p.lookAtLocked(now.Add(p.opt.SilentAfter))
	return lost
}

// loseLocked gives up the flight of a block that its lane does not bring.
func (p *Prefetcher) loseLocked(b *block, lost []*flight) []*flight {
	f := b.f
	_, path := p.lanes[b.lane].file(b.spot)
	p.dropWaitingLocked(f)
	p.lanes[b.lane].failures++
	return p.abandonLocked(f, lost, &ReadError{Path: path, Offset: b.offset, Bytes: b.bytes, ID: f.id,
		Err: fmt.Errorf("%w for %v", ErrNoAnswer, p.opt.SilentAfter)})
}

// abandonLocked makes the caller the one who fails a flight.
func (p *Prefetcher) abandonLocked(f *flight, lost []*flight, err error) []*flight {
	f.state, f.err = flightSettling, err
	p.count.abandoned.Add(1)
	return append(lost, f)
}
