package experts

import (
	"fmt"
	"time"
)

// PressureOptions describe a Pressure. Floor and Ceiling are needed.
type PressureOptions struct {
	// Floor and Ceiling bound the budget, in bytes: Cache.Floor, and what was
	// configured.
	Floor, Ceiling int64
	// Largest is the size in bytes of the largest record. No step but the last
	// to a bound is smaller, so that each step moves at least one expert.
	Largest int64
	// StallShare is the share of time that the process may lose to memory
	// stalls ("some" of the kernel's PSI): from there on it is under pressure,
	// and calm below a quarter of it. 0 is 0.05.
	StallShare float64
	// Every is the time between samples; 0 is one second.
	Every time.Duration
	// Settle is the least time between two shrinks, for the system to feel the
	// first; 0 is three times Every.
	Settle time.Duration
	// Calm is how long it must be calm before the budget grows by a step; it
	// doubles when growth was followed by pressure, up to MaxCalm. 0 is ten
	// times Every, and 600 times Every.
	Calm, MaxCalm time.Duration
}

// PressureSample is what a system tells at one moment. What it does not tell
// is 0 in every sample.
type PressureSample struct {
	StallMicros  int64 // time that somebody waited for memory, in µs, since some start
	MajorFaults  int64 // of the process, since its start
	SwappedBytes int64 // of the process, in swap now
}

// Pressure decides how much of a budget to use on a system that others need
// memory of as well. Under pressure the budget shrinks by an eighth at a time;
// when it has been calm for a while it grows by a 64th of the ceiling at a time.
//
// It does not oscillate: the calm time doubles whenever growth is followed by
// pressure, for the first step after it and for each step near the level where
// it last came, or beyond; steps below that follow each other after Calm. It
// halves for each MaxCalm without pressure. So somebody who takes and frees
// memory at intervals shorter than MaxCalm soon finds the budget at rest, and
// some 7 x MaxCalm after the last pressure it is at the ceiling.
//
// It has no clock, no lock and does no I/O, and is not safe for concurrent use.
type Pressure struct {
	o      PressureOptions
	budget int64
	wait   time.Duration // calm time before a step
	level  int64         // budget at which pressure last came; Ceiling at first

	started bool
	at      time.Time // of last
	last    PressureSample

	shrunkAt time.Time
	movedAt  time.Time // of the last step, or the last time it was not calm
	quietAt  time.Time // since when wait did not change for calm
	grew     int64     // last step, if it was growth; 0 after a shrink
	fresh    bool      // no step of growth yet since the last pressure
	reason   string
}

// NewPressure starts at the ceiling. It fails if Floor is not between 0 and
// Ceiling, or an option is negative.
func NewPressure(o PressureOptions) (*Pressure, error) {
	if o.Floor < 0 || o.Ceiling < max(o.Floor, 1) || o.Largest < 0 {
		return nil, fmt.Errorf("experts: pressure: floor %d, ceiling %d and largest record %d bytes: want 0 <= floor <= ceiling, none negative", o.Floor, o.Ceiling, o.Largest)
	}
	if !(o.StallShare >= 0) || o.Every < 0 || o.Settle < 0 || o.Calm < 0 || o.MaxCalm < 0 {
		return nil, fmt.Errorf("experts: pressure: stall share %g and times %v, %v, %v, %v must not be negative", o.StallShare, o.Every, o.Settle, o.Calm, o.MaxCalm)
	}
	o.StallShare = orDefault(o.StallShare, 0.05)
	o.Every = orDefault(o.Every, time.Second)
	o.Settle = orDefault(o.Settle, 3*o.Every)
	o.Calm = orDefault(o.Calm, 10*o.Every)
	o.MaxCalm = max(orDefault(o.MaxCalm, 600*o.Every), o.Calm)
	return &Pressure{o: o, budget: o.Ceiling, level: o.Ceiling, wait: o.Calm}, nil
}

func orDefault[T float64 | time.Duration](given, usual T) T {
	if given == 0 {
		return usual
	}
	return given
}

// Every is the time between samples.
func (p *Pressure) Every() time.Duration { return p.o.Every }

// Budget is what the last Observe returned; Ceiling before the first.
func (p *Pressure) Budget() int64 { return p.budget }

// Reason says why the budget was last changed, for a log: "memory stalls took
// 7.3 % of the time". It is empty before the first change.
func (p *Pressure) Reason() string { return p.reason }

// SetCeiling changes the bound. A budget that was at the old one goes to the
// new one at once; one that had shrunk stays, if it may, and grows as ever.
// A ceiling below the floor counts as the floor.
func (p *Pressure) SetCeiling(bytes int64) {
	bytes = max(bytes, p.o.Floor, 1)
	if p.budget == p.o.Ceiling || p.budget > bytes {
		p.budget = bytes
	}
	if p.level == p.o.Ceiling || p.level > bytes {
		p.level = bytes
	}
	p.o.Ceiling = bytes
}

// Observe takes the sample of a moment and returns the budget from there on.
// Samples less than half of Every after the last are left out; after a clock or
// a counter that ran backwards, it starts to watch anew.
func (p *Pressure) Observe(now time.Time, s PressureSample) int64 {
	if !p.started || now.Before(p.at) || s.StallMicros < p.last.StallMicros || s.MajorFaults < p.last.MajorFaults {
		p.started, p.at, p.last = true, now, s
		p.movedAt, p.quietAt, p.shrunkAt = now, now, now.Add(-p.o.Settle)
		return p.budget
	}
	span := now.Sub(p.at)
	if span < p.o.Every/2 {
		return p.budget
	}
	state, why := p.judge(span, s)
	p.at, p.last = now, s
	switch state {
	case pressed:
		p.shrink(now, why)
	case uneasy:
		p.movedAt, p.quietAt = now, now
	case calm:
		p.ease(now)
	}
	return p.budget
}

type pressureState uint8

const (
	calm pressureState = iota
	uneasy
	pressed
)

// faultsPerSecond is how many major faults a second are pressure, in a process
// of which a part is in swap: each is a wait for the swap device.
const faultsPerSecond = 100

// judge compares a sample with the last one. Without anything in swap, major
// faults are those of mapped files, which a smaller budget need not help.
func (p *Pressure) judge(span time.Duration, s PressureSample) (pressureState, string) {
	seconds := span.Seconds()
	stall := float64(s.StallMicros-p.last.StallMicros) / 1e6 / seconds
	faults := float64(s.MajorFaults-p.last.MajorFaults) / seconds
	swapped := s.SwappedBytes - p.last.SwappedBytes
	switch {
	case stall >= p.o.StallShare:
		return pressed, fmt.Sprintf("memory stalls took %.1f %% of the time", 100*stall)
	case float64(swapped) >= seconds*float64(p.o.Ceiling/1024+1):
		return pressed, fmt.Sprintf("%.1f MiB were swapped out", float64(swapped)/(1<<20))
	case faults >= faultsPerSecond && s.SwappedBytes > 0:
		return pressed, fmt.Sprintf("%.0f major faults a second while memory is in swap", faults)
	case stall >= p.o.StallShare/4, swapped > 0:
		return uneasy, ""
	}
	return calm, ""
}

// shrink takes one step down, unless the last one was just now. If the budget
// had grown to where pressure came before, that step is taken back first.
func (p *Pressure) shrink(now time.Time, why string) {
	p.movedAt, p.quietAt, p.fresh = now, now, true
	if now.Sub(p.shrunkAt) < p.o.Settle {
		return
	}
	step := max(p.budget/8, p.o.Largest)
	if p.grew > 0 {
		if p.nearLevel(p.budget) {
			step = p.grew
		}
		p.wait = min(2*p.wait, p.o.MaxCalm)
	}
	p.level = p.budget
	p.grew = 0
	p.shrunkAt = now
	if lower := max(p.budget-step, p.o.Floor); lower < p.budget {
		p.budget, p.reason = lower, why
	}
}

// step is how much it grows at a time.
func (p *Pressure) step() int64 { return max(p.o.Ceiling/64, p.o.Largest, 1) }

// nearLevel reports whether a budget is within a step of where pressure last
// came, or beyond.
func (p *Pressure) nearLevel(budget int64) bool { return budget > p.level-p.step() }

// ease grows by a step when it has been calm for long enough.
func (p *Pressure) ease(now time.Time) {
	step := min(p.step(), p.o.Ceiling-p.budget)
	wait := p.o.Calm
	if p.fresh || p.nearLevel(p.budget+step) {
		wait = p.wait
	}
	if now.Sub(p.quietAt) >= p.o.MaxCalm {
		p.quietAt = now
		p.wait = max(p.wait/2, p.o.Calm)
	}
	if step == 0 || now.Sub(p.movedAt) < wait {
		return
	}
	p.reason = fmt.Sprintf("no memory pressure for %v", now.Sub(p.movedAt).Round(time.Second/10))
	p.budget += step
	p.grew, p.fresh, p.movedAt = step, false, now
}
