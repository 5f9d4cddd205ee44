package router

import (
	"fmt"

	"outrider/trace"
)

// revealed is a predictor that knows the layer that comes next.
type revealed struct {
	inner Predictor
	truth *Oracle
}

var _ Predictor = (*revealed)(nil)

// NewRevealed makes a predictor that forecasts as inner does, except that the layer
// which its sequence executes next is read from the trace: 1 for what it uses, else
// 0. That is the layer after the one observed last in this pass, the first one
// when the pass has only begun, and that of the sequence's next token after the
// last layer. It is a bound for anything that looks one layer ahead, never a
// forecast. Its name is inner's with "+next".
//
// Histories follow the trace's sequences as those of Oracle do; one without a
// sequence, or past its end, is inner's. The trace is kept and must not change. It
// fails on a trace whose shape is not valid; inner must be of the same shape.
func NewRevealed(inner Predictor, t *trace.Trace) (Predictor, error) {
	if err := t.Header.Shape.Validate(); err != nil {
		return nil, fmt.Errorf("router: %s+next: %w", inner.Name(), err)
	}
	truth, err := NewOracle(t.Header.Shape, t)
	if err != nil {
		return nil, err
	}
	return &revealed{inner: inner, truth: truth}, nil
}

// Name is inner's with "+next".
func (r *revealed) Name() string { return r.inner.Name() + "+next" }

// NewHistory starts the trace's next sequence.
func (r *revealed) NewHistory() History {
	return &revealedHistory{inner: r.inner.NewHistory(), truth: r.truth.newHistory()}
}

type revealedHistory struct {
	inner History
	truth *oracleHistory
	next  int  // layer that executes next
	later bool // in the next pass
}

// Begin starts a pass: its first layer comes next.
func (h *revealedHistory) Begin(phase trace.Phase, tokens []int32) {
	h.inner.Begin(phase, tokens)
	h.truth.Begin(phase, tokens)
	h.next, h.later = 0, false
}

// Observe tells inner, and moves on to the next layer.
func (h *revealedHistory) Observe(layer int, choices []Choice) {
	h.inner.Observe(layer, choices)
	h.truth.Observe(layer, choices)
	if layers := h.truth.oracle.shape.Layers; layer >= 0 && layer < layers {
		h.next = (layer + 1) % layers
		h.later = h.next == 0
	}
}

// Score is the truth for the layer that comes next, else inner's.
func (h *revealedHistory) Score(layer int, dst []float32) {
	if layer != h.next || !fits(h.truth.oracle.shape, layer, dst) || !h.truth.reveal(layer, h.later, dst) {
		h.inner.Score(layer, dst)
	}
}

// Outlook is inner's, where it has one.
func (h *revealedHistory) Outlook(layer int, next, dst []float32) bool {
	return outlook(h.inner, layer, next, dst)
}
