package runtime

import (
	"errors"
	"sync/atomic"
	"time"

	"outrider/experts"
)

// PressureStats say what the system's memory pressure did to the budget.
type PressureStats struct {
	// Watched: pressure is watched, and the budget follows it. Not with
	// Options.FixedBudget, nor where the system tells nothing.
	Watched bool
	// Shrinks and Grows count changes of the budget; LastReason says why the
	// latest one was made, "" before the first.
	Shrinks, Grows int64
	LastReason     string
}

// sampler is where samples of memory pressure come from.
type sampler interface {
	Sample() (experts.PressureSample, error)
}

// pressure watches the system's memory; nil where nobody does. control and failing
// are guarded by budget.mu.
type pressure struct {
	source  sampler
	control *experts.Pressure
	failing bool // the last look at it led to nothing

	shrinks, grows atomic.Int64
	reason         atomic.Pointer[string]
}

// newPressure begins to watch; nil if the budget is fixed or there is nothing to
// see.
func (rt *Runtime) newPressure(o Options, bytes int64) (*pressure, error) {
	if o.FixedBudget {
		return nil, nil
	}
	source, err := o.pressureSource()
	if err != nil {
		if !errors.Is(err, experts.ErrNoPressure) {
			rt.log.Warn("memory pressure cannot be watched: the budget is fixed", "error", err)
		}
		rt.log.Debug("the system tells no memory pressure: the budget is fixed", "reason", err)
		return nil, nil
	}
	control, err := experts.NewPressure(experts.PressureOptions{
		Floor: rt.cache.Floor(), Ceiling: bytes, Largest: largestSlot(rt.source),
	})
	if err != nil {
		return nil, err
	}
	return &pressure{source: source, control: control}, nil
}

// pressureSource is the system's, or that of a test.
func (o Options) pressureSource() (sampler, error) {
	if o.sampler != nil {
		return o.sampler, nil
	}
	return experts.NewPressureSource()
}

// every is how often to look, 0 for never.
func (p *pressure) every() time.Duration {
	if p == nil {
		return 0
	}
	return p.control.Every()
}

// allowed is the part of a newly configured budget that pressure leaves.
func (p *pressure) allowed(bytes int64) int64 {
	if p == nil {
		return bytes
	}
	p.control.SetCeiling(bytes)
	return p.control.Budget()
}

// watch takes a sample and lets the budget follow.
func (rt *Runtime) watch(now time.Time) {
	rt.budget.mu.Lock()
	defer rt.budget.mu.Unlock()
	p := rt.budget.pressure
	sample, err := p.source.Sample()
	if err != nil {
		rt.cannotFollow(err)
		return
	}
	before, bytes := rt.budget.now.Load(), p.control.Observe(now, sample)
	if bytes != before {
		err = rt.setBudgetLocked(bytes)
	}
	if err != nil {
		rt.cannotFollow(err)
		return
	}
	p.failing = false
	if bytes == before {
		return
	}
	if bytes < before {
		p.shrinks.Add(1)
	} else {
		p.grows.Add(1)
	}
	reason := p.control.Reason()
	p.reason.Store(&reason)
	rt.log.Info("budget follows memory pressure", "budget_bytes", bytes, "before_bytes", before,
		"limit_bytes", rt.budget.limit.Load(), "reason", reason)
}

// cannotFollow says once why the budget stays as it is.
func (rt *Runtime) cannotFollow(err error) {
	p := rt.budget.pressure
	if !p.failing && rt.ctx.Err() == nil {
		rt.log.Warn("the budget cannot follow memory pressure: it stays as it is", "error", err)
	}
	p.failing = true
}

func (p *pressure) stats() PressureStats {
	if p == nil {
		return PressureStats{}
	}
	s := PressureStats{Watched: true, Shrinks: p.shrinks.Load(), Grows: p.grows.Load()}
	if reason := p.reason.Load(); reason != nil {
		s.LastReason = *reason
	}
	return s
}
