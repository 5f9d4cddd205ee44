package router

import (
	"fmt"
	"sync/atomic"

	"outrider/layout"
)

// LeastStale is the order of eviction that SpecMD (Hoang et al., arXiv
// 2602.03921) proposes against LRU's fault of evicting just what the next layers
// need. Only the paper's abstract and summaries of it were at hand, so this is our
// reading, and details may differ:
//
//	stale      an expert that the pass under way did not use
//	staleness  passes since its last use, 0 if this pass used it
//
// The stalest goes first. Among equally stale ones those go first whose layer
// executes last, so that what this pass has behind it goes before what it has
// ahead. Experts of one layer that are equally stale rank alike.
//
// A pass begins when the layer number does not rise. That suits one sequence or
// one batch; where sequences take turns within a pass, each turn back to a lower
// layer counts as a pass.
type LeastStale struct {
	experts int
	layers  int
	used    marks
	keys    []float64 // by ordinal
	// place is pass × layers + layer of what executed last, -1 before: one number,
	// so that Expect sees both of the same moment.
	place atomic.Int64
}

// NewLeastStale makes the order, with every expert as stale as can be. It fails on
// a shape that is not valid.
func NewLeastStale(shape layout.Shape) (*LeastStale, error) {
	if err := shape.Validate(); err != nil {
		return nil, fmt.Errorf("router: least stale: %w", err)
	}
	s := &LeastStale{
		experts: shape.Experts, layers: shape.Layers, used: newMarks(shape.Experts),
		keys: filled(shape.Count(), neverUsed),
	}
	s.place.Store(-1)
	return s, nil
}

// Routed notes the pass of the last use.
func (s *LeastStale) Routed(layer int, choices []Choice) {
	if layer < 0 || layer >= s.layers {
		return
	}
	layers, place := int64(s.layers), s.place.Load()
	pass := int64(0)
	if place >= 0 {
		pass = place / layers
		if int64(layer) <= place%layers {
			pass++
		}
	}
	keys := s.Keys(layer)
	for _, e := range s.used.union(choices) {
		keys[e] = -float64(pass * layers)
	}
	s.place.Store(pass*layers + int64(layer))
}

// Keys is the pass of the last use, times the layers and counted backwards.
func (s *LeastStale) Keys(layer int) []float64 { return s.keys[layer*s.experts:][:s.experts] }

// Expect is staleness × layers + the number of layer executions until layer
// executes next. The second is at most the first's unit, so staleness ranks first.
func (s *LeastStale) Expect(layer int, key float64) float64 {
	layers := int64(s.layers)
	place := s.place.Load()
	start, at := int64(0), int64(-1) // of the pass; in it
	if place >= 0 {
		at = place % layers
		start = place - at
	}
	distance := int64(layer) - at
	if distance <= 0 {
		distance += layers
	}
	return float64(start) + key + float64(distance)
}
