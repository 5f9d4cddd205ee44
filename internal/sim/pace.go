package sim

import "outrider/prefetcher"

// pace measures steps and reads for prefetcher.Tempo, in layer computes.
type pace struct {
	prefetcher.Tempo

	open  int     // reads under way
	since float64 // when the drives became busy
	busy  float64 // time that they were, since the last step
	done  int     // reads that ended since then
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
	p.Ended(took)
}

// stepped notes that a step took so long, and how much of it each drive read for
// demands.
func (p *pace) stepped(now, took float64, demand []float64) {
	if p.open > 0 {
		p.busy += now - p.since
		p.since = now
	}
	p.Step(took, demand, p.busy, p.done)
	p.busy, p.done = 0, 0
}
