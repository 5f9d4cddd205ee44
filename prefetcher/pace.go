package prefetcher

import (
	"math"
	"time"
)

// pace measures, from times it is given, how long a step takes, how long the
// source is busy with one expert, and which share of the time demands keep each
// lane busy. It has no clock of its own. Not safe for concurrent use.
type pace struct {
	lanes []span // by lane, demand blocks being read
	all   span   // flights being read
	done  int    // flights read since the last step

	step     int64
	stepAt   time.Time
	stepTime float64 // seconds, smoothed
	readTime float64 // seconds of the source for one expert, smoothed
	latency  float64 // seconds from the begin of a read to its end, smoothed
	shares   []float64
}

// span measures how long at least one of several things was going on.
type span struct {
	open int
	from time.Time
	sum  time.Duration
}

func (s *span) begin(now time.Time) {
	if s.open == 0 {
		s.from = now
	}
	s.open++
}

func (s *span) end(now time.Time) {
	s.open--
	if s.open == 0 {
		s.sum += now.Sub(s.from)
	}
}

// take is the time since the last take.
func (s *span) take(now time.Time) time.Duration {
	if s.open > 0 {
		s.sum += now.Sub(s.from)
		s.from = now
	}
	d := s.sum
	s.sum = 0
	return d
}

func newPace(lanes int) pace {
	return pace{lanes: make([]span, lanes), shares: make([]float64, lanes)}
}

// advance notes that a step began, and returns the share of the time since the
// last one that demands kept each lane busy: valid until the next call, nil if
// there is no time to measure.
func (p *pace) advance(step int64, now time.Time) []float64 {
	first := p.stepAt.IsZero()
	elapsed := now.Sub(p.stepAt)
	if !first && (step <= p.step || elapsed <= 0) {
		return nil
	}
	busy, done := p.all.take(now), p.done
	for i := range p.lanes {
		d := p.lanes[i].take(now)
		if !first {
			p.shares[i] = float64(d) / float64(elapsed)
		}
	}
	steps := step - p.step
	p.step, p.stepAt, p.done = step, now, 0
	if first {
		return nil
	}
	// A pause between tokens is not a step: it counts four usual steps at most.
	each := elapsed.Seconds() / float64(steps)
	if p.stepTime > 0 {
		each = min(each, 4*p.stepTime)
	}
	p.stepTime = smooth(p.stepTime, each)
	if done > 0 {
		p.readTime = smooth(p.readTime, busy.Seconds()/float64(done))
	}
	return p.shares
}

// readSteps is the time of one read in steps, 0 while not known.
func (p *pace) readSteps() float64 {
	if p.stepTime <= 0 {
		return 0
	}
	return p.readTime / p.stepTime
}

// ended notes that the read of one expert took so long.
func (p *pace) ended(took time.Duration) {
	p.done++
	p.latency = smooth(p.latency, took.Seconds())
}

// reach is how many steps a read takes from begin to end, at least 1; 1 while
// that is not known.
func (p *pace) reach() int {
	if p.stepTime <= 0 {
		return 1
	}
	return int(max(math.Ceil(min(p.latency/p.stepTime, maxReach)), 1))
}

// maxReach keeps a drive that hangs from making all forecasts look far ahead.
const maxReach = 1024

func smooth(old, now float64) float64 {
	if old == 0 {
		return now
	}
	return old + (now-old)/8
}
