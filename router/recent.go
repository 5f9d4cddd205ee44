package router

import (
	"fmt"
	"math"
	"sync/atomic"

	"outrider/layout"
)

// Recent orders eviction by the past alone: LRU evicts what was used longest
// ago, LFU what was used least often. Both are yardsticks, and have the methods
// of experts.Policy. Expect may be called from any goroutine; Touch and Keys
// are for one goroutine at a time.
type Recent struct {
	experts int
	now     atomic.Int64
	keys    []float64 // by ordinal
	often   bool      // LFU
}

// NewLRU makes the least-recently-used order: Expect is the number of layer
// executions since the last use. It fails on a shape that is not valid.
func NewLRU(shape layout.Shape) (*Recent, error) { return newRecent(shape, false) }

// NewLFU makes the least-frequently-used order; of two experts that were used
// equally often the one used longer ago goes first. Expect only ranks: it is no
// number of layers. It fails on a shape that is not valid.
func NewLFU(shape layout.Shape) (*Recent, error) { return newRecent(shape, true) }

func newRecent(shape layout.Shape, often bool) (*Recent, error) {
	if err := shape.Validate(); err != nil {
		return nil, fmt.Errorf("router: recency order: %w", err)
	}
	r := &Recent{experts: shape.Experts, keys: make([]float64, shape.Count()), often: often}
	if !often {
		for i := range r.keys {
			r.keys[i] = math.MaxInt32
		}
	}
	return r, nil
}

// ageUnit is what one touch of age counts in an LFU key: far less than a use.
const ageUnit = 1.0 / (1 << 32)

// Touch counts one use. Later touches are more recent, also in one layer.
func (r *Recent) Touch(layer, index int) {
	now := float64(r.now.Add(1))
	key := &r.keys[layer*r.experts+index]
	if !r.often {
		*key = -now
		return
	}
	*key = math.Ceil(*key) - 1 - now*ageUnit
}

// Keys is one number for each expert of the layer: the larger goes first. The
// slice is the order's own and changes with Touch.
func (r *Recent) Keys(layer int) []float64 { return r.keys[layer*r.experts:][:r.experts] }

// Expect ranks: the larger goes first.
func (r *Recent) Expect(_ int, key float64) float64 {
	if r.often {
		return key
	}
	return float64(r.now.Load()) + key
}
