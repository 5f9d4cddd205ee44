package prefetcher

import (
	"math"

	"outrider/layout"
)

// Candidate is an expert that a forecast would have read ahead.
type Candidate struct {
	ID       layout.ExpertID
	P        float32 // probability that step NeededBy uses it
	NeededBy int64   // the step that would use it; steps count layer executions since the start
}

// DefaultMargin is how many times later than the newcomer's own next use the
// victim of a speculative read must be expected. With equal forecasts for both, a
// swap costs a read and gains nothing; a margin keeps errors of the forecast from
// doing harm.
const DefaultMargin = 1.5

// Expect is the expected number of layer executions until an expert is used,
// for one that step NeededBy uses with probability p: the distance to that step,
// and one cycle of all layers for each time that it is passed over. It is the
// measure of experts.Policy, so that a newcomer can be compared with those it
// would displace.
func (c Candidate) Expect(step int64, layers int) float64 {
	p := float64(c.P)
	if !(p > 1e-6) {
		p = 1e-6
	}
	p = min(p, 1)
	return float64(max(c.NeededBy-step, 0)) + float64(layers)*(1/p-1)
}

// Admission is what the admission of speculative reads depends on. Plain values,
// so that the live prefetcher and the simulation decide alike.
type Admission struct {
	Step      int64   // the step that is executing
	Threshold float64 // least p x saved share, 0 to 1 (Governor.Threshold)
	// ReadSteps is the time of one read over the time that demands leave the drive
	// in a step (Tempo.FreeSteps): speculation has no other. What demands take
	// lengthens the step as much as it delays the read. 0 where not known.
	ReadSteps float64
	// TopK, the experts of a layer that one token uses, bounds what the reads for
	// one step are expected to waste, see Fill; 0: nothing does.
	TopK int
}

// Saved is the share of one read's stall, 0 to 1, that a read begun behind
// ahead other speculative ones spares if the expert is indeed used. It is 1 when the
// read is in time. A late read still spares what is done by then: the demand joins it.
func (a Admission) Saved(c Candidate, ahead int) float64 {
	left := float64(c.NeededBy - a.Step)
	if left <= 0 {
		return 0
	}
	if a.ReadSteps <= 0 {
		return 1
	}
	arrive := float64(ahead+1) * a.ReadSteps
	late := max(arrive-left, 0)
	return max(1-late/a.ReadSteps, 0)
}

// Admit is the rule for one candidate with ahead speculative reads before it:
// the expected saved stall, p x Saved in units of one read's time, reaches the
// threshold, and the read comes in time, which is to say that at least half of it
// is done when it is needed.
func (a Admission) Admit(c Candidate, ahead int) bool {
	saved := a.Saved(c, ahead)
	return saved >= 0.5 && float64(c.P)*saved >= a.Threshold
}

// Earliest is the first step for which a read begun now would be in time. Queued
// speculative reads needed before it are dropped.
func (a Admission) Earliest() int64 {
	// Capped, since a measured duration may be anything.
	half := math.Ceil(min(a.ReadSteps/2, 1e9))
	return a.Step + int64(max(half, 1))
}
