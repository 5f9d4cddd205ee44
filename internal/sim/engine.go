package sim

import (
	"context"
	"fmt"
	"math"

	"outrider/experts"
	"outrider/internal/passes"
	"outrider/internal/runs"
	"outrider/layout"
	"outrider/prefetcher"
	"outrider/router"
	"outrider/trace"
)

// Run simulates one run (see runs.Names) on the trace. It fails on a run or
// options that are not valid, on an empty trace, and with the context's error
// when that ends.
func Run(ctx context.Context, t *trace.Trace, name string, o Options) (*Result, error) {
	r, err := runs.Parse(name)
	if err != nil {
		return nil, fmt.Errorf("sim: %w: %w", ErrOption, err)
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	head, rest, err := o.cut(t)
	if err != nil {
		return nil, err
	}
	e, err := newEngine(ctx, head, rest, r, o.withDefaults())
	if err != nil {
		return nil, err
	}
	for done := 0; ; {
		parts := e.schedule.Next()
		if parts == nil {
			return e.result(), nil
		}
		if e.played%64 == 0 {
			if ctx.Err() != nil {
				return nil, fmt.Errorf("sim: %s stopped at token %d: %w", name, done, context.Cause(ctx))
			}
			if o.Progress != nil {
				o.Progress(done)
			}
		}
		if err := e.pass(parts); err != nil {
			return nil, fmt.Errorf("sim: %s: after %d tokens: %w", name, done, err)
		}
		for _, p := range parts {
			done += len(p.Tokens)
		}
	}
}

// engine is one run.
type engine struct {
	opts      Options
	policy    runs.Run
	trace     *trace.Trace
	shape     layout.Shape
	schedule  *passes.Schedule
	union     *passes.Union
	table     *experts.Table
	capacity  int
	order     router.Order    // nil where a forecast or the optimum ranks
	best      *router.Optimum // nil unless that is the run
	forecast  *forecast       // nil if nothing is forecast
	governor  *prefetcher.Governor
	queue     *prefetcher.Queue
	placement placement
	drives    drives
	pace      pace

	now      float64 // time, in layer computes
	step     int64   // layer execution that is under way, -1 before the first
	stepAt   float64
	played   int // passes
	stall    float64
	demanded int64
	hits     int64
	late     int64
	complete int64
	reads    int64              // demand reads
	ahead    int64              // speculative reads
	told     experts.TableStats // of which the governor knows
	off      int64              // steps with speculation switched off
	lapses   *prefetcher.Lapses

	dropped    []prefetcher.Item
	candidates []prefetcher.Candidate
	busy       []float64
}

// newEngine makes a run on a trace; the forecast learns from head before it.
func newEngine(ctx context.Context, head, t *trace.Trace, r runs.Run, o Options) (*engine, error) {
	shape := t.Header.Shape
	if err := shape.Validate(); err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	e := &engine{opts: o, policy: r, trace: t, shape: shape, step: -1,
		schedule: passes.New(t, passes.Options{MaxTokens: o.MaxTokens, Batch: o.Batch, Chunk: o.Chunk}),
		union:    passes.NewUnion(shape), lapses: prefetcher.NewLapses(shape),
	}
	predictor, err := e.newPredictor(ctx, head)
	if err != nil {
		return nil, err
	}
	if e.capacity, err = o.capacity(shape); err != nil {
		return nil, err
	}
	e.placement = newPlacement(shape, o)
	e.drives = newDrives(e.placement.drives)
	e.busy = make([]float64, e.placement.drives)
	o.Governor.Lanes = e.placement.drives
	e.governor = prefetcher.NewGovernor(o.Governor)
	e.queue = prefetcher.NewQueue(shape, 0)
	if err := e.makePolicy(predictor); err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	return e, nil
}

// makePolicy makes what ranks, and the table that asks it.
func (e *engine) makePolicy(predictor router.Predictor) error {
	var policy experts.Policy
	var keeper *router.Keeper
	var err error
	if e.order, err = e.policy.NewOrder(e.shape); err != nil {
		return err
	}
	switch {
	case e.policy.Keep == runs.Optimum:
		if e.best, err = e.schedule.Optimum(); err != nil {
			return err
		}
		policy = e.best
	case e.order != nil:
		policy = e.order
	default:
		if keeper, err = router.NewKeeper(e.shape); err != nil {
			return err
		}
		policy = keeper
	}
	e.table, err = experts.NewTable(experts.TableOptions{
		Shape: e.shape, BudgetBytes: int64(e.capacity), Bytes: func(int) int64 { return 1 }, Policy: policy, Protect: 1,
	})
	if err == nil && predictor != nil {
		e.forecast = newForecast(e, predictor, keeper)
	}
	return err
}

// pass executes all layers for some tokens of some sequences.
func (e *engine) pass(parts []passes.Part) error {
	if e.forecast != nil {
		for _, p := range parts {
			e.lookAhead(e.forecast.begin(e.step, p), true)
		}
		e.speculate()
	}
	for layer := range e.shape.Layers {
		e.now += e.opts.Attention
		e.run(e.now, false)
		if err := e.execute(parts, layer); err != nil {
			return fmt.Errorf("layer %d: %w", layer, err)
		}
	}
	if e.forecast != nil {
		for _, p := range parts {
			if p.Last {
				e.forecast.end(p)
			}
		}
	}
	e.played++
	return nil
}

// execute runs a layer from the moment that its routing is known. If it needs
// more experts than fit, they come in waves, each of which computes its share.
func (e *engine) execute(parts []passes.Part, layer int) error {
	e.beginStep()
	e.union.Gather(e.schedule, parts, layer)
	if e.best != nil {
		return e.demandOneByOne(layer)
	}
	if e.order != nil {
		e.order.Routed(layer, e.union.All)
		e.table.Invalidate(layer)
	}
	left := e.union.Experts
	found := 0
	for first := true; first || len(left) > 0; first = false {
		wave := left[:min(len(left), e.capacity)]
		found += e.demand(layer, wave)
		if first {
			e.observe(parts, layer, len(wave) == len(left))
		}
		if err := e.wait(); err != nil {
			return err
		}
		e.compute(layer, wave)
		left = left[len(wave):]
	}
	e.count(found)
	return nil
}

// compute is the wave's share of what the layer computes with its experts.
func (e *engine) compute(layer int, wave []int32) {
	share := 1.0
	if n := len(e.union.Experts); n > 0 {
		share = float64(len(wave)) / float64(n)
	}
	e.now += (1 - e.opts.Attention) * share
	e.run(e.now, false)
	for _, x := range wave {
		e.table.Unpin(layout.ExpertID{Layer: int32(layer), Index: x})
	}
}

// wait stalls until the demanded experts are here.
func (e *engine) wait() error {
	e.run(math.Inf(1), true)
	e.stall += e.drives.clock - e.now
	e.now = e.drives.clock
	return e.drives.err
}

// count notes how many of the layer's experts were found in memory.
func (e *engine) count(found int) {
	e.demanded += int64(len(e.union.Experts))
	e.hits += int64(found)
	if found == len(e.union.Experts) {
		e.complete++
	}
}

// observe lets the forecast learn and look ahead.
func (e *engine) observe(parts []passes.Part, layer int, guess bool) {
	if e.forecast == nil {
		return
	}
	for i, p := range parts {
		e.lookAhead(e.forecast.observe(e.step, layer, p, e.union.Choices[i]), guess)
	}
	e.speculate()
}

// beginStep counts a layer execution and lets the governor judge.
func (e *engine) beginStep() {
	e.table.Step()
	// As in the prefetcher: the governor hears of uses a step later.
	s := e.table.Stats()
	e.governor.Useful(int(s.Useful - e.told.Useful))
	e.governor.Displaced(int(s.Displaced - e.told.Displaced))
	e.told = s
	took := e.now - e.stepAt
	for i := range e.drives.list {
		e.busy[i] = 0
		if took > 0 {
			e.busy[i] = e.drives.list[i].busy / took
		}
		e.drives.list[i].busy = 0
	}
	if e.step >= 0 && took > 0 {
		e.pace.stepped(e.now, took, e.busy)
	}
	e.step++
	e.stepAt = e.now
	e.lapse(false)
	e.governor.Step(e.step, e.busy)
	if e.policy.Speculate && e.governor.Mode() == prefetcher.SpeculationOff {
		e.off++
		e.lapse(true)
	}
}

// lapse drops the speculative reads that have been due for too long and were not used.
func (e *engine) lapse(off bool) {
	for id, ok := e.lapses.Next(e.step, off); ok; id, ok = e.lapses.Next(e.step, off) {
		if e.table.InFlight(id) {
			e.lapses.Begun(id, e.step) // look again later
			continue
		}
		e.table.Lapse(id)
	}
}

// demand asks for experts of a layer: it pins those that are here, asks the
// drives for the others, and returns how many were here.
func (e *engine) demand(layer int, used []int32) (found int) {
	for _, x := range used {
		id := layout.ExpertID{Layer: int32(layer), Index: x}
		outcome := e.table.Use(id)
		switch {
		case outcome.Resident():
			found++
			e.table.Pin(id)
			continue
		case outcome == experts.FillingLate:
			e.late++
			e.governor.Late(1)
		}
		e.demandFlight(id)
	}
	return found
}
