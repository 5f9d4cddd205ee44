package router

import (
	"math"

	"outrider/layout"
)

var _ Saver = (*Hinted)(nil)

// hintedName stands for Hinted in a file: its own name is that of what it wraps.
const hintedName = "hinted"

// Shape is the shape of the model that is forecast.
func (h *Hinted) Shape() layout.Shape { return h.shape }

// VisitState visits the inner predictor, which must be a Saver, and what was
// learned of hints.
func (h *Hinted) VisitState(s *State) {
	s.Inner(h.inner)
	for l := range h.layers {
		y := &h.layers[l]
		s.Section(layerPart(l), &y.mu, func() {
			s.Revision(1)
			for phase := range y.heads {
				for d := range y.heads[phase] {
					y.heads[phase][d].visit(s, h.shape.Experts)
				}
			}
		})
	}
}

// visit visits what was learned since newHintHead.
func (h *hintHead) visit(s *State, experts int) {
	if !s.Has(h.bias != nil, 4*experts) {
		return
	}
	s.Floats(h.weight[:], -maxLearned, maxLearned)
	s.Floats(h.speed[:], math.SmallestNonzeroFloat32, maxSquares)
	s.Float(&h.innerLoss, 0, maxCount)
	s.Float(&h.ownLoss, 0, maxCount)
	if h.bias == nil {
		h.bias = make([]float32, experts)
	}
	s.Floats(h.bias, -maxLearned, maxLearned)
	if !s.Has(h.ties != nil, 4*experts*experts) {
		return
	}
	if h.ties == nil {
		h.ties = make([]float32, experts*experts)
	}
	s.Floats(h.ties, -maxLearned, maxLearned)
}

// makeHinted makes what a file's hinted predictor wraps, and wraps it.
func (s *State) makeHinted(shape layout.Shape) Saver {
	name := s.innerName("")
	if name == hintedName {
		s.Refuse("it wraps another of its kind")
	}
	if s.err != nil {
		return nil
	}
	inner := s.make(name, shape)
	if s.err != nil {
		return nil
	}
	return NewHinted(inner, shape)
}
