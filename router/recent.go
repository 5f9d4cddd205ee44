package router

import (
	"fmt"
	"sync/atomic"

	"outrider/layout"
)

// Recent orders eviction by the past alone: LRU evicts what was used longest
// ago, LFU what was used least often. Both are yardsticks.
//
// The experts of one layer execution are used at once, and rows of choices are
// not always in rank order: so of those the one with the higher index goes first.
// An expert that was never used goes before all others.
type Recent struct {
	experts int
	layers  int
	used    marks
	now     atomic.Int64 // layer executions so far
	uses    []uint32     // by ordinal, executions that used the expert; nil for LRU
	keys    []float64    // by ordinal
}

// NewLRU makes the least-recently-used order: Expect is the number of layer
// executions since the last use, with fractions that rank within one execution.
// It fails on a shape that is not valid.
func NewLRU(shape layout.Shape) (*Recent, error) { return newRecent("LRU", shape) }

// NewLFU makes the least-frequently-used order, counted from the start and
// without decay: Expect is the number of layer executions so far over those that
// used the expert. Of two experts that were used equally often the one used
// longer ago goes first; that is exact for 2^36 executions, and as far as a
// float64 tells for experts used more than some 10^5 times. It fails on a shape
// that is not valid.
func NewLFU(shape layout.Shape) (*Recent, error) {
	r, err := newRecent("LFU", shape)
	if err == nil {
		r.uses = make([]uint32, shape.Count())
	}
	return r, err
}

func newRecent(name string, shape layout.Shape) (*Recent, error) {
	if err := shape.Validate(); err != nil {
		return nil, fmt.Errorf("router: %s: %w", name, err)
	}
	return &Recent{
		experts: shape.Experts, layers: shape.Layers, used: newMarks(shape.Experts),
		keys: filled(shape.Count(), neverUsed),
	}, nil
}

// ageUnit is what one layer execution of age counts beside a use in LFU, and
// mostAge the most that age can count: less than one use.
const (
	ageUnit = 1.0 / (1 << 36)
	mostAge = 0.999
)

// Routed counts one use of each expert, however many tokens chose it.
func (r *Recent) Routed(layer int, choices []Choice) {
	if layer < 0 || layer >= r.layers {
		return
	}
	used := r.used.union(choices)
	now := float64(r.now.Add(1))
	row := layer * r.experts
	for _, e := range used {
		// Less than one execution apart, whatever the index.
		at := now - float64(e)/float64(r.experts)
		if r.uses == nil {
			r.keys[row+int(e)] = -at
			continue
		}
		n := &r.uses[row+int(e)]
		if *n++; *n == 0 {
			*n-- // full
		}
		r.keys[row+int(e)] = 1 / (float64(*n) + min(at*ageUnit, mostAge))
	}
}

// Keys is, in LRU, the last use counted backwards; in LFU, one over the uses.
func (r *Recent) Keys(layer int) []float64 { return r.keys[layer*r.experts:][:r.experts] }

// Expect is the number of layer executions since the last use (LRU), or for each
// use (LFU).
func (r *Recent) Expect(_ int, key float64) float64 {
	now := float64(r.now.Load())
	if r.uses == nil {
		return now + key
	}
	return max(now, 1) * key
}
