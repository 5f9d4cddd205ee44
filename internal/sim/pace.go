package sim

import "math"

// pace measures steps and reads as the prefetcher does, in layer computes:
// exponentially smoothed, a pause counting four usual steps at most.
type pace struct {
	step    float64 // time of one
	readFor float64 // that the drives are busy with one expert
	latency float64 // of a read from begin to end

	open  int     // reads under way
	since float64 // when the drives became busy
	busy  float64 // time that they were, since the last step
	done  int     // reads that ended since then
}

const paceGain = 1.0 / 8

func smooth(old, now float64) float64 {
	if old == 0 {
		return now
	}
	return old + (now-old)*paceGain
}

// began notes that the read of an expert begins.
func (p *pace) began(now float64) {
	if p.open == 0 {
		p.since = now
	}
	p.open++
}

// ended notes that it ends, having taken so long.
func (p *pace) ended(now, took float64) {
	p.open--
	if p.open == 0 {
		p.busy += now - p.since
	}
	p.done++
	p.latency = smooth(p.latency, took)
}

// stepped notes that a step took so long.
func (p *pace) stepped(now, took float64) {
	if p.open > 0 {
		p.busy += now - p.since
		p.since = now
	}
	if p.step > 0 {
		took = min(took, 4*p.step)
	}
	p.step = smooth(p.step, took)
	if p.done > 0 {
		p.readFor = smooth(p.readFor, p.busy/float64(p.done))
	}
	p.busy, p.done = 0, 0
}

// reach is how many steps a read takes, rounded up, at least 1.
func (p *pace) reach() float64 {
	if p.step <= 0 {
		return 1
	}
	return max(math.Ceil(p.latency/p.step), 1)
}

// readSteps is how long the drives are busy with one expert, in steps; 0 while
// that is not known.
func (p *pace) readSteps() float64 {
	if p.step <= 0 {
		return 0
	}
	return p.readFor / p.step
}
