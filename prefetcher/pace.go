package prefetcher

import (
	"math"
	"time"
)

// Tempo smooths how long steps and reads take, in any unit of time, for the live
// prefetcher and the simulation alike. The zero value has measured nothing. Not safe
// for concurrent use.
type Tempo struct {
	stepTime float64 // of one
	freeTime float64 // of a step, what demands leave of the source
	readTime float64 // that the source is busy with one expert
	latency  float64 // of a read from begin to end
}

// tempoGain is the share of the latest measure.
const tempoGain = 1.0 / 8

func smooth(old, now float64) float64 {
	if old == 0 {
		return now
	}
	return old + (now-old)*tempoGain
}

// Step tells that a step took so long, which share of it each lane read for demands,
// and that the source was busy in it for a time in which done reads of experts ended.
// A pause between tokens is not a step: it counts four usual steps at most.
func (t *Tempo) Step(took float64, demand []float64, busy float64, done int) {
	if t.stepTime > 0 {
		took = min(took, 4*t.stepTime)
	}
	t.stepTime = smooth(t.stepTime, took)
	free := 1.0
	for _, share := range demand {
		free -= min(max(share, 0), 1) / float64(len(demand))
	}
	// Never nothing, which would mean "not known".
	t.freeTime = smooth(t.freeTime, took*max(free, 1e-6))
	if done > 0 {
		t.readTime = smooth(t.readTime, busy/float64(done))
	}
}

// Ended tells that the read of an expert took so long from begin to end.
func (t *Tempo) Ended(took float64) { t.latency = smooth(t.latency, took) }

// ReadSteps is how long the source is busy with one expert, in steps; 0 while not
// known.
func (t *Tempo) ReadSteps() float64 {
	if t.stepTime <= 0 {
		return 0
	}
	return t.readTime / t.stepTime
}

// FreeSteps is how many steps go by while demands leave the source the time of one
// read, for Admission; 0 while not known.
func (t *Tempo) FreeSteps() float64 {
	if t.freeTime <= 0 {
		return 0
	}
	return t.readTime / t.freeTime
}

// Reach is how many steps a read takes from begin to end, rounded up, at least 1;
// 1 while that is not known.
func (t *Tempo) Reach() int {
	if t.stepTime <= 0 {
		return 1
	}
	return int(max(math.Ceil(min(t.latency/t.stepTime, maxReach)), 1))
}

// maxReach keeps a drive that hangs from making all forecasts look far ahead.
const maxReach = 1024

// pace measures, from times it is given, how long a step takes, how long the
// source is busy with one expert, and which share of the time demands keep each
// lane busy. It has no clock of its own. Not safe for concurrent use.
type pace struct {
	Tempo        // in seconds
	lanes []span // by lane, demand blocks being read
	all   span   // flights being read
	done  int    // flights read since the last step

	util float64 // share of the time that the source is busy, decayed

	step   int64
	stepAt time.Time
	shares []float64
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
	p.util += (min(busy.Seconds()/elapsed.Seconds(), 1) - p.util) * tempoGain
	p.Step(elapsed.Seconds()/float64(steps), p.shares, busy.Seconds(), done)
	return p.shares
}

// saturated reports whether the source hardly ever rests.
func (p *pace) saturated() bool { return p.util > 0.9 }

// ended notes that the read of one expert took so long.
func (p *pace) ended(took time.Duration) {
	p.done++
	p.Ended(took.Seconds())
}
