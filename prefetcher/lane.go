package prefetcher

import (
	"sync"
	"time"

	"outrider/layout"
)

// lane is one device: its line of blocks, its workers and what is known of its
// speed. Fields below the first group are guarded by Prefetcher.mu.
type lane struct {
	layout.Lane
	index int
	depth int   // requests read at once, and workers
	gap   int64 // bytes between neighbours that are read along with them
	// several says that the files have a Reader that pays, so that a worker carries several
	// requests. Then one worker that comes is enough for all there is to do.
	several bool

	wake   *sync.Cond // for workers
	idle   int        // workers that wait and were not woken
	coming int        // workers that were woken, or will look for work before they wait
	spare  []*op      // that nothing refers to
	again  []*op      // that failed, for workers that carry nothing to try again
	demand []*block   // waiting, in the order in which they go
	ahead  []*block   // the same of speculative reads
	passed int        // demand blocks begun while a speculative one waited
	flying []*op      // being read
	width  int        // of these, speculative
	queued int64      // bytes of demand and ahead
	moving int64      // bytes of flying that are not stuck
	rate   rate
	ended  time.Time // when a read ended last, or one began with none under way
	silent bool      // nothing has ended for Options.SilentAfter

	reads, bytes, failures int64
}

// backlog is how many bytes are before a new read.
func (l *lane) backlog() int64 { return l.queued + l.moving }

// demanded is how many bytes of demands it has not read yet.
func (l *lane) demanded() (n int64) {
	for _, b := range l.demand {
		n += b.bytes
	}
	for _, o := range l.flying {
		if o.urgent {
			n += o.bytes
		}
	}
	return n
}

// file is where a spot lies.
func (l *lane) file(s spot) (layout.File, string) {
	if s.copies {
		return l.Copies, l.CopiesPath
	}
	return l.File, l.Path
}

// put lines a block up.
func (l *lane) put(b *block, first bool) {
	line := &l.ahead
	if b.f.class == Demand {
		line = &l.demand
	}
	*line = append(*line, b)
	if first {
		copy((*line)[1:], *line)
		(*line)[0] = b
	}
	l.queued += b.bytes
}

// newOp is one that nothing refers to.
func (l *lane) newOp() *op {
	if n := len(l.spare); n > 0 {
		o := l.spare[n-1]
		l.spare = without(l.spare, n-1)
		return o
	}
	return &op{}
}

// take takes a block out of its line.
func (l *lane) take(b *block) {
	for _, line := range []*[]*block{&l.demand, &l.ahead} {
		for i, x := range *line {
			if x == b {
				*line = without(*line, i)
				l.queued -= b.bytes
				return
			}
		}
	}
}

// without takes element i out of the list, keeping the order.
func without[T any](list []T, i int) []T {
	var zero T
	copy(list[i:], list[i+1:])
	list[len(list)-1] = zero
	return list[:len(list)-1]
}

// chooseLocked decides where a block that lies twice is read: where it would be
// done first, by the bytes before it and the lane's speed of late. One choice in
// probeEvery goes the other way, so that a lane that got better is noticed.
func (p *Prefetcher) chooseLocked(b *block) {
	if !b.twice {
		return
	}
	here, there := p.lanes[b.lane], p.lanes[b.other.lane]
	switch {
	case here.silent != there.silent:
		if here.silent {
			b.swap()
		}
		return
	case p.costLocked(there, b.bytes) < p.costLocked(here, b.bytes):
		b.swap()
	}
	if p.mu.choices++; p.mu.choices%probeEvery == 0 && !there.silent {
		b.swap()
	}
}

// probeEvery makes one choice of a lane in a hundred a probe of the other one.
const probeEvery = 100

// costLocked is the time, in seconds, until a lane would have read so many bytes
// more.
func (p *Prefetcher) costLocked(l *lane, bytes int64) float64 {
	speed := l.rate.bytesPerSecond()
	if speed <= 0 {
		speed = p.usualSpeedLocked()
	}
	return float64(l.backlog()+bytes) / speed * l.rate.penalty()
}

// usualSpeedLocked stands in for the speed of a lane that was never read.
func (p *Prefetcher) usualSpeedLocked() float64 {
	sum, n := 0.0, 0
	for _, l := range p.lanes {
		if speed := l.rate.bytesPerSecond(); speed > 0 {
			sum += speed
			n++
		}
	}
	if n == 0 {
		return 1 << 30
	}
	return sum / float64(n)
}

// putLocked lines a block up at the better of its places, and wakes a worker.
func (p *Prefetcher) putLocked(b *block, first bool) {
	b.state = blockWaiting
	p.chooseLocked(b)
	l := p.lanes[b.lane]
	l.put(b, first)
	if !l.rouse() && b.twice {
		p.lanes[b.other.lane].rouse() // it may be quicker after all
	}
}

// rouse sees that a worker looks for work, and reports whether one does.
func (l *lane) rouse() bool {
	if l.several && l.coming > 0 {
		return true
	}
	if l.idle == 0 {
		return false
	}
	l.idle--
	l.coming++
	l.wake.Signal()
	return true
}

// rouseAll wakes all workers.
func (l *lane) rouseAll() {
	l.coming += l.idle
	l.idle = 0
	l.wake.Broadcast()
}

// stealLocked finds a demand block in another lane's line that this one, which has
// nothing to do, would be done with earlier.
func (p *Prefetcher) stealLocked(l *lane) *block {
	if l.silent {
		return nil
	}
	for _, from := range p.lanes {
		if from == l {
			continue
		}
		for i := len(from.demand) - 1; i >= 0; i-- {
			b := from.demand[i]
			if b.twice && b.other.lane == l.index && (from.silent || p.costLocked(l, b.bytes) < p.costLocked(from, 0)) {
				from.take(b)
				b.swap()
				l.put(b, true)
				return b
			}
		}
	}
	return nil
}

// wakeLocked wakes up to n workers, of any lanes: one is enough where it carries several
// requests.
func (p *Prefetcher) wakeLocked(n int) {
	for _, l := range p.lanes {
		if l.several && l.coming > 0 && !l.full() {
			return
		}
	}
	for _, l := range p.lanes {
		for n > 0 && !l.full() && l.rouse() {
			if l.several {
				return
			}
			n--
		}
	}
}

// freeLocked is how many requests more could be begun at once, by workers that wait or
// are coming.
func (p *Prefetcher) freeLocked() (n int) {
	for _, l := range p.lanes {
		if l.several {
			n += max(min(l.idle+l.coming, l.depth-len(l.flying)), 0)
		} else {
			n += l.idle
		}
	}
	return n
}
