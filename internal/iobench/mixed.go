package iobench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"outrider/layout"
	"outrider/router"
	"outrider/runtime"
	"outrider/trace"
)

// plan is what the mixed arms use: in each layer one expert that nobody foresees,
// and after it some that the forecast names with all but certainty. It is only read.
type plan struct {
	layers, each int
	experts      []int32 // each of every execution, again and again
}

// planned is how many executions a plan has before it begins again; a multiple of
// any number of layers is made of it.
const planned = 2048

func newPlan(t *Target, foreseen int) *plan {
	p := &plan{layers: t.Shape.Layers, each: 1 + foreseen}
	lists := make([]*picks, p.layers)
	for l := range lists {
		lists[l] = newPicks(t.Shape.Experts, max(t.Shape.Experts-p.each, 0), uint64(l)+1000)
	}
	for range max(planned/p.layers, 1) {
		for _, list := range lists {
			for range p.each {
				p.experts = append(p.experts, list.next())
			}
		}
	}
	return p
}

// at is what a layer uses in a pass; the first is the one that nobody foresees.
func (p *plan) at(pass int32, layer int) []int32 {
	from := (int(pass)*p.layers + layer) % (len(p.experts) / p.each) * p.each
	return p.experts[from : from+p.each : from+p.each]
}

// planHistory forecasts what the plan says; the pass is told as the token.
type planHistory struct {
	*plan
	pass int32
	last int // layer observed latest
}

var (
	_ router.Predictor = (*plan)(nil)
	_ router.History   = (*planHistory)(nil)
)

// Name implements router.Predictor.
func (p *plan) Name() string { return "planned" }

// NewHistory implements router.Predictor.
func (p *plan) NewHistory() router.History { return &planHistory{plan: p} }

// Begin implements router.History.
func (h *planHistory) Begin(_ trace.Phase, tokens []int32) {
	if len(tokens) == 1 {
		h.pass, h.last = tokens[0], -1
	}
}

// Observe implements router.History.
func (h *planHistory) Observe(layer int, _ []router.Choice) { h.last = layer }

// Score implements router.History.
func (h *planHistory) Score(layer int, dst []float32) {
	const sure = 0.95
	clear(dst)
	pass := h.pass
	if layer <= h.last {
		pass++
	}
	for _, e := range h.at(pass, layer)[1:] {
		dst[e] = sure
	}
}

// mixed is a model that computes for a while in each layer, needs one expert that
// nobody could foresee, and others that the forecast has right. How long the first
// takes to arrive, with the forecast's reads under way and without any, is what
// speculation costs those who cannot wait.
type mixed struct {
	plan      *plan
	speculate bool // the foreseen experts are used and forecast
	rt        *runtime.Runtime
	s         *runtime.Session
	pass      int32
	layer     int
	compute   time.Duration
	choice    [1]router.Choice
	token     [1]int32
}

// foreseenShare of a batch is read ahead. A layer computes for as long as the raw
// reader takes for a whole batch (Bench), so that the drive is busy for somewhat more
// than half of the time, and both kinds of reads meet.
const foreseenShare = 0.5

// newMixed opens the target with speculation or without.
func newMixed(t *Target, fsys layout.FS, o runtime.Options, speculate bool) (*mixed, error) {
	src, err := t.Open(fsys)
	if err != nil {
		return nil, fmt.Errorf("iobench: %w", err)
	}
	foreseen := min(max(int(foreseenShare*float64(t.Experts)), 1), t.Shape.Experts-1)
	m := &mixed{plan: newPlan(t, foreseen), speculate: speculate}
	o.BudgetBytes, o.FixedBudget = int64(t.Experts)*t.RecordBytes, true
	o.Keep, o.NoSpeculation, o.Predictor = runtime.KeepLRU, true, nil
	if speculate {
		o.BudgetBytes *= 2 * batchesAtHand // room for what is read ahead
		o.Keep, o.NoSpeculation, o.Predictor = runtime.KeepForecast, false, m.plan
	}
	if m.rt, err = runtime.New(unsummed{src}, o); err != nil {
		return nil, fmt.Errorf("iobench: %w", err)
	}
	m.s = m.rt.NewSession()
	return m, nil
}

// execute is an operation: one layer. It says when the unforeseen expert arrived.
func (m *mixed) execute(ctx context.Context) (took time.Duration, err error) {
	if m.layer == 0 {
		m.pass++
		m.token[0] = m.pass
		m.s.Step(trace.Decode, m.token[:])
	}
	time.Sleep(m.compute)
	experts := m.plan.at(m.pass, m.layer)
	unforeseen := int(experts[0])
	if !m.speculate {
		experts = experts[:1]
	}
	m.choice[0].Experts = experts
	began := time.Now()
	use, err := m.s.Use(ctx, m.layer, m.choice[:])
	if err != nil {
		return 0, err
	}
	defer use.Release()
	m.layer = (m.layer + 1) % m.plan.layers
	if _, here := use.Expert(unforeseen); here {
		took = unmeasured // still in memory from long ago, where a layer has few experts
	}
	for ex, err := range use.Ready(ctx) {
		if err != nil {
			return 0, err
		}
		if ex.Index() == unforeseen && took != unmeasured {
			took = time.Since(began)
		}
	}
	return took, nil
}

// slice measures for a while, after one pass to get going. Compute is what a layer
// takes by itself.
func (m *mixed) slice(ctx context.Context, rec *record, d, compute time.Duration) (Slice, error) {
	m.compute = compute
	for range m.plan.layers {
		if _, err := m.execute(ctx); err != nil {
			return Slice{}, err
		}
	}
	before := m.rt.Stats().Reads
	s, err := rec.measure(ctx, limits{time: d}, m.execute)
	after := m.rt.Stats().Reads
	s.Bytes = after.DemandBytes + after.SpeculativeBytes - before.DemandBytes - before.SpeculativeBytes
	return s, err
}

func (m *mixed) close() error { return errors.Join(m.s.Close(), m.rt.Close()) }
