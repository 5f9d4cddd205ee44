package prefetcher

import "errors"

// errStale is the end of a speculative read that is no longer wanted. Nobody gets to
// see it: who demands the expert meanwhile has it read anew.
var errStale = errors.New("prefetcher: the forecast was withdrawn")

// unnamedTwice is how many forecasts in a row must not name a read under way before
// it is stopped, since a forecast may waver.
const unnamedTwice = 2

// stopStaleLocked stops the speculative reads under way that nobody waits for and
// that stale, which is asked once of each, says are not wanted, unless most of them
// has been read.
func (p *Prefetcher) stopStaleLocked(stale func(*flight) bool) {
	var begun []*flight
	p.mu.looks++
	for _, l := range p.lanes {
		for _, b := range l.ahead {
			if b.f.look != p.mu.looks {
				b.f.look = p.mu.looks
				begun = append(begun, b.f)
			}
		}
	}
	for _, f := range begun {
		if !stale(f) || f.state != flightReading || f.err != nil || 2*f.waitingBytes() <= f.place.Bytes {
			continue
		}
		f.err = errStale
		p.dropWaitingLocked(f)
		p.count.cancelled.Add(1)
		if f.busy == 0 {
			f.state = flightSettling
			p.choreLocked(chore{f: f})
		}
	}
}

// waitingBytes is how much of the flight nobody has begun to read.
func (f *flight) waitingBytes() (n int64) {
	for i := range f.blocks {
		if b := &f.blocks[i]; b.state == blockWaiting {
			n += b.bytes
		}
	}
	return n
}

// unnamedLocked reports whether a flight's expert was not named by the latest
// forecasts. Named tells of the present one.
func unnamedLocked(f *flight, named bool) bool {
	if named {
		f.unnamed = 0
		return false
	}
	f.unnamed++
	return f.unnamed >= unnamedTwice
}
