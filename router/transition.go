package router

import (
	"fmt"
	"sync"

	"outrider/layout"
	"outrider/trace"
)

// Transition forecasts from decayed co-activation counts: P(expert | experts
// chosen in the layer before), averaged over these. Where the layer before is
// not known, so for layer 0 and for the next pass, it takes what the last pass
// chose in the same layer instead.
type Transition struct {
	shape  layout.Shape
	layers []transitionLayer
}

var _ Predictor = (*Transition)(nil)

type transitionLayer struct {
	mu    sync.Mutex
	use   []float32 // decayed passes that used the expert; nil until the layer is seen
	seen  float32   // decayed passes
	near  pairs     // from the layer before
	again pairs     // from the last pass
}

// NewTransition makes a predictor that has seen nothing. It fails on a shape
// that is not valid, and with ErrShape on one that is too large. It keeps two
// matrices of experts × experts float32 a layer, made when the layer is first seen.
func NewTransition(shape layout.Shape) (*Transition, error) {
	if err := shape.Validate(); err != nil {
		return nil, fmt.Errorf("router: transition: %w", err)
	}
	if err := checkPairs("transition", shape); err != nil {
		return nil, err
	}
	return &Transition{shape: shape, layers: make([]transitionLayer, shape.Layers)}, nil
}

// openLocked makes a layer's state unless it is there.
func (y *transitionLayer) openLocked(experts int) {
	if y.use == nil {
		y.use = make([]float32, experts)
		y.near, y.again = newPairs(experts), newPairs(experts)
	}
}

// Shape is the shape of the model that is forecast.
func (t *Transition) Shape() layout.Shape { return t.shape }

// VisitState visits the counts of each layer.
func (t *Transition) VisitState(s *State) {
	n := t.shape.Experts
	for l := range t.layers {
		y := &t.layers[l]
		s.Section(layerPart(l), &y.mu, func() {
			s.Revision(1)
			if !s.Has(y.use != nil, 4*n*(2*n+3)) {
				return
			}
			y.openLocked(n)
			s.Float(&y.seen, 0, maxCount)
			s.Floats(y.use, 0, y.seen*countSlack)
			y.near.visit(s)
			y.again.visit(s)
		})
	}
}

// Name is "transition".
func (t *Transition) Name() string { return "transition" }

// NewHistory starts a sequence.
func (t *Transition) NewHistory() History {
	h := &transitionHistory{
		transition: t,
		sets:       make([][]int32, t.shape.Layers),
		passes:     make([]int64, t.shape.Layers),
		used:       newMarks(t.shape.Experts),
	}
	for l := range h.sets {
		h.sets[l] = make([]int32, 0, maxSources)
	}
	return h
}

type transitionHistory struct {
	transition *Transition
	pass       int64
	sets       [][]int32 // by layer, the last choice, at most maxSources
	passes     []int64   // by layer, the pass of that choice
	used       marks
}

// Begin starts a pass.
func (h *transitionHistory) Begin(trace.Phase, []int32) { h.pass++ }

// Observe counts one pass. Ids that the model does not have are left out.
func (h *transitionHistory) Observe(layer int, choices []Choice) {
	t := h.transition
	if layer < 0 || layer >= t.shape.Layers {
		return
	}
	used := h.used.union(choices)
	y := &t.layers[layer]
	y.mu.Lock()
	defer y.mu.Unlock()
	y.openLocked(t.shape.Experts)
	y.again.add(h.sets[layer], used, nil)
	if h.observed(layer - 1) {
		y.near.add(h.sets[layer-1], used, nil)
	}
	y.seen = y.seen*useDecay + 1
	for e := range y.use {
		y.use[e] *= useDecay
	}
	for _, e := range used {
		y.use[e]++
	}
	h.sets[layer] = append(h.sets[layer][:0], used[:min(len(used), maxSources)]...)
	h.passes[layer] = h.pass
}

func (h *transitionHistory) observed(layer int) bool {
	return layer >= 0 && h.passes[layer] == h.pass && h.pass > 0
}

// Score forecasts a layer; one that does not exist scores 0.
func (h *transitionHistory) Score(layer int, dst []float32) {
	t := h.transition
	if !fits(t.shape, layer, dst) {
		clear(dst)
		return
	}
	y := &t.layers[layer]
	y.mu.Lock()
	defer y.mu.Unlock()
	y.openLocked(t.shape.Experts)
	counts, from := &y.again, h.sets[layer]
	if !h.observed(layer) && h.observed(layer-1) {
		counts, from = &y.near, h.sets[layer-1]
	}
	base := float32(t.shape.TopK) / float32(t.shape.Experts)
	scale := 1 / (y.seen + 1)
	for e, u := range y.use {
		dst[e] = (u + base) * scale
	}
	counts.mean(from, dst)
}

// mean replaces the long-run frequency in p by the mean of P(target | source)
// over the sources, if there are any.
func (p *pairs) mean(from []int32, dst []float32) {
	if len(from) == 0 {
		return
	}
	var prior float32
	share := 1 / float32(len(from))
	for _, i := range from {
		prior += pairPrior / (p.passes[i] + pairPrior) * share
	}
	for e := range dst {
		dst[e] *= prior
	}
	for _, i := range from {
		axpy(share/(p.passes[i]+pairPrior), p.count[int(i)*p.experts:][:p.experts], dst)
	}
}
