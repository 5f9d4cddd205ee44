package sim

import (
	"context"
	"fmt"

	"outrider/experts"
	"outrider/layout"
	"outrider/prefetcher"
	"outrider/router"
	"outrider/trace"
)

// Run simulates one run on the trace. It fails on a run or options that are
// not valid, on an empty trace, and with the context's error when that ends.
func Run(ctx context.Context, t *trace.Trace, name string, o Options) (*Result, error) {
	r, err := parseRun(name)
	if err != nil {
		return nil, err
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	e, err := newEngine(t, r, o.withDefaults())
	if err != nil {
		return nil, err
	}
	for i := range e.tokens {
		if i%64 == 0 && ctx.Err() != nil {
			return nil, fmt.Errorf("sim: %s stopped at token %d: %w", name, i, ctx.Err())
		}
		if err := e.pass(i); err != nil {
			return nil, fmt.Errorf("sim: %s: token %d: %w", name, i, err)
		}
	}
	return e.result(), nil
}

// engine is one run.
type engine struct {
	opts      Options
	run       run
	trace     *trace.Trace
	shape     layout.Shape
	tokens    int
	table     *experts.Table
	capacity  int
	guide     guide
	predicted *forecast // guide, if that is a forecast
	best      *optimum  // guide, if that is the optimum
	governor  *prefetcher.Governor
	queue     *prefetcher.Queue
	drive     drive

	now      float64 // time, in layer computes
	step     int64   // layer execution that is under way, -1 before the first
	stepAt   float64
	stall    float64
	demanded int64
	hits     int64
	late     int64
	complete int64
	reads    int64 // demand reads
	ahead    int64 // speculative reads
	thrown   int64 // displaced, as told to the governor
	misses   []layout.ExpertID
	dropped  []prefetcher.Item

	candidates []prefetcher.Candidate
}

// drive reads one expert at a time.
type drive struct {
	each    float64 // time of one read
	free    float64 // when the read in progress, or the last one, ends
	reading bool    // a speculative read is in progress
	id      layout.ExpertID
	demand  float64 // time spent on demands since the last step
}

func newEngine(t *trace.Trace, r run, o Options) (*engine, error) {
	shape := t.Header.Shape
	if err := shape.Validate(); err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	e := &engine{opts: o, run: r, trace: t, shape: shape, tokens: t.Len(), step: -1}
	if o.MaxTokens > 0 {
		e.tokens = min(e.tokens, o.MaxTokens)
	}
	if e.tokens == 0 {
		return nil, fmt.Errorf("sim: %w: the trace of %q has no tokens", ErrOption, t.Header.Model)
	}
	var err error
	if e.capacity, err = o.capacity(shape); err != nil {
		return nil, err
	}
	if err := e.makeGuide(); err != nil {
		return nil, err
	}
	e.table, err = experts.NewTable(experts.TableOptions{
		Shape: shape, BudgetBytes: int64(e.capacity), Bytes: func(int) int64 { return 1 },
		Policy: e.guide, Protect: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	e.governor = prefetcher.NewGovernor(o.Governor)
	e.queue = prefetcher.NewQueue(shape, 0)
	e.drive.each = o.Ratio / float64(shape.TopK)
	return e, nil
}

func (e *engine) makeGuide() error {
	var err error
	switch e.run.name {
	case "lru", "lfu":
		make := router.NewLRU
		if e.run.name == "lfu" {
			make = router.NewLFU
		}
		var recent *router.Recent
		if recent, err = make(e.shape); err == nil {
			e.guide = &past{Recent: recent, trace: e.trace}
		}
	case "optimum":
		e.best = newOptimum(e.trace, e.tokens)
		e.guide = e.best
	default:
		if e.predicted, err = newForecast(e.run, e.trace, e.tokens, e.opts.Horizon); err == nil {
			e.guide = e.predicted
		}
	}
	if err != nil {
		return fmt.Errorf("sim: %w", err)
	}
	return nil
}

// pass executes all layers for one token.
func (e *engine) pass(token int) error {
	if e.guide.begin(token) {
		for layer := range min(e.opts.Horizon, e.shape.Layers) {
			e.table.Invalidate(layer)
		}
		e.forecastReads()
	}
	for layer := range e.shape.Layers {
		e.readAhead(e.now + e.opts.Attention)
		e.now += e.opts.Attention
		if err := e.execute(token, layer); err != nil {
			return err
		}
	}
	return nil
}

// execute runs a layer from the moment that its routing is known.
func (e *engine) execute(token, layer int) error {
	e.beginStep()
	used, _ := e.trace.Row(token, layer)
	if e.best != nil {
		e.best.routed(token, layer)
		ready, err := e.demandOneByOne(token, layer, used)
		e.stall += ready - e.now
		e.now = ready + 1 - e.opts.Attention
		return err
	}
	ready := e.demand(layer, used)
	for _, changed := range e.guide.routed(token, layer) {
		e.table.Invalidate(changed)
	}
	ready, err := e.readDemands(ready)
	if err != nil {
		return err
	}
	e.forecastReads()
	e.stall += ready - e.now
	done := ready + 1 - e.opts.Attention
	e.readAhead(done)
	for _, x := range used {
		e.table.Unpin(layout.ExpertID{Layer: int32(layer), Index: x})
	}
	e.now = done
	return nil
}

// beginStep counts a layer execution and lets the governor judge.
func (e *engine) beginStep() {
	e.table.Step()
	displaced := e.table.Stats().Displaced
	e.governor.Displaced(int(displaced - e.thrown))
	e.thrown = displaced
	share := [1]float64{}
	if e.now > e.stepAt {
		share[0] = e.drive.demand / (e.now - e.stepAt)
	}
	e.step++
	e.governor.Step(e.step, share[:])
	e.drive.demand, e.stepAt = 0, e.now
	e.dropped = e.queue.ClearSpeculative(e.dropped[:0])
}

// demand asks for the experts that the routing names, pins those that are here
// and lists the others. It returns when the read in progress ends if that is
// one of them, else now.
func (e *engine) demand(layer int, used []int32) (ready float64) {
	ready = e.now
	e.misses = e.misses[:0]
	e.demanded += int64(len(used))
	hits := 0
	for _, x := range used {
		id := layout.ExpertID{Layer: int32(layer), Index: x}
		outcome := e.table.Use(id)
		switch {
		case outcome.Resident():
			hits++
			e.table.Pin(id)
			if outcome == experts.HitUseful {
				e.governor.Useful(1)
			}
		case outcome == experts.FillingLate:
			e.late++
			e.governor.Late(1)
			e.table.Commit(id, 1)
			e.drive.reading = false
			ready = e.drive.free
		default:
			e.misses = append(e.misses, id)
		}
	}
	e.hits += int64(hits)
	if hits == len(used) {
		e.complete++
	}
	return ready
}

// readDemands reads the misses, one after the other, once the drive is free.
func (e *engine) readDemands(ready float64) (float64, error) {
	if len(e.misses) == 0 {
		return ready, nil
	}
	if e.drive.reading {
		e.governor.DemandWait()
	}
	start := max(e.drive.free, e.now)
	for _, id := range e.misses {
		if _, err := e.table.Begin(id, experts.Demand, 0); err != nil {
			return 0, fmt.Errorf("no room for %v: %w", id, err)
		}
		e.table.Commit(id, 1)
		e.reads++
		start += e.drive.each
	}
	if e.drive.reading {
		e.endRead() // before the first demand
	}
	e.drive.demand += float64(len(e.misses)) * e.drive.each
	e.drive.free = start
	return max(ready, start), nil
}

// endRead makes the expert of the speculative read in progress resident.
func (e *engine) endRead() {
	e.table.Commit(e.drive.id, 0)
	e.drive.reading = false
}

func (e *engine) result() *Result {
	s := e.table.Stats()
	n := float64(e.tokens)
	r := &Result{
		Run: e.run.name, CacheShare: float64(e.capacity) / float64(e.shape.Count()), Ratio: e.opts.Ratio,
		Hits:                     float64(e.hits) / float64(max(e.demanded, 1)),
		DemandReadsPerToken:      float64(e.reads) / n,
		SpeculativeReadsPerToken: float64(e.ahead) / n,
		Useful:                   s.Useful, Late: e.late, Wasted: s.Wasted, Displaced: s.Displaced,
		StallOverCompute:  e.stall / (n * float64(e.shape.Layers)),
		LayerCompleteRate: float64(e.complete) / (n * float64(e.shape.Layers)),
	}
	if e.predicted != nil && e.predicted.scored > 0 {
		r.RecallAtK = e.predicted.recall / float64(e.predicted.scored)
	}
	return r
}
