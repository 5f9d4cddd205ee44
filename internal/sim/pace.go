package sim

import "math"

// pace measures steps and reads as the prefetcher does: exponentially smoothed,
// a pause counting four usual steps at most. Times are in layer computes.
type pace struct {
	step    float64
	latency float64 // of a read from begin to end
}

const paceGain = 1.0 / 8

func smooth(old, now float64) float64 {
	if old == 0 {
		return now
	}
	return old + (now-old)*paceGain
}

func (p *pace) stepped(took float64) {
	if p.step > 0 {
		took = min(took, 4*p.step)
	}
	p.step = smooth(p.step, took)
}

func (p *pace) read(took float64) { p.latency = smooth(p.latency, took) }

// reach is how many steps a read takes, rounded up, at least 1.
func (p *pace) reach() int {
	if p.step <= 0 {
		return 1
	}
	return int(max(math.Ceil(min(p.latency/p.step, mostHorizon)), 1))
}

// readSteps is how long the drives are busy with one expert, in steps.
func (p *pace) readSteps(each float64) float64 {
	if p.step <= 0 {
		return 0
	}
	return each / p.step
}
