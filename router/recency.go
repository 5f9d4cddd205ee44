package router

import (
	"fmt"

	"outrider/layout"
	"outrider/trace"
)

// recencyScale is the number of passes after which a use counts 1/e.
const recencyScale = 12

// Recency forecasts exponentially decayed use within the sequence: what was
// used lately is used again. It shares nothing between sequences.
type Recency struct {
	shape layout.Shape
}

var _ Predictor = (*Recency)(nil)

// NewRecency makes the predictor. It fails on a shape that is not valid.
func NewRecency(shape layout.Shape) (*Recency, error) {
	if err := shape.Validate(); err != nil {
		return nil, fmt.Errorf("router: recency: %w", err)
	}
	return &Recency{shape: shape}, nil
}

// Name is "recency".
func (r *Recency) Name() string { return "recency" }

// NewHistory starts a sequence, with every expert as likely as any other.
func (r *Recency) NewHistory() History {
	h := &recencyHistory{shape: r.shape, use: make([]float32, r.shape.Count()), used: newMarks(r.shape.Experts)}
	for i := range h.use {
		h.use[i] = float32(r.shape.TopK) / float32(r.shape.Experts)
	}
	return h
}

type recencyHistory struct {
	shape layout.Shape
	use   []float32 // by ordinal
	used  marks
}

// Begin does nothing: only layers matter here.
func (h *recencyHistory) Begin(trace.Phase, []int32) {}

// Observe counts one pass. Ids that the model does not have are left out.
func (h *recencyHistory) Observe(layer int, choices []Choice) {
	if layer < 0 || layer >= h.shape.Layers {
		return
	}
	row := h.use[layer*h.shape.Experts:][:h.shape.Experts]
	for e := range row {
		row[e] *= 1 - 1.0/recencyScale
	}
	for _, e := range h.used.union(choices) {
		row[e] += 1.0 / recencyScale
	}
}

// Score forecasts a layer; one that does not exist scores 0.
func (h *recencyHistory) Score(layer int, dst []float32) {
	if !fits(h.shape, layer, dst) {
		clear(dst)
		return
	}
	copy(dst, h.use[layer*h.shape.Experts:])
}

// Shape is the shape of the model that is forecast.
func (r *Recency) Shape() layout.Shape { return r.shape }

// VisitState visits nothing: all there is ends with the sequences.
func (r *Recency) VisitState(*State) {}
