package router

import (
	"fmt"
	"math"
	"sync/atomic"

	"outrider/layout"
)

// minUse and maxUse clamp probabilities: a forecast is never certain.
const (
	minUse = 1e-5
	maxUse = 1 - 1e-5
)

// clamp also takes NaN, for minUse.
func clamp(p float32) float64 {
	if p > minUse {
		return min(float64(p), maxUse)
	}
	return minUse
}

// Keeper turns forecasts into the order of eviction: the expert whose next use
// is expected last goes first. It has the methods of experts.Policy. Several
// sequences share one Keeper: its caller joins their forecasts, see Join.
//
// Enter, Expect and Distance may be called from any goroutine. Set and Keys are
// for one goroutine at a time.
type Keeper struct {
	layers   int
	experts  int
	least    float64        // rate that no expert is taken to be under
	distance []atomic.Int32 // by layer, executions until its next one
	rates    []float32      // by ordinal, smoothed probability of use at an execution of the layer
	keys     []float64      // by ordinal, expected layers beyond the layer's next execution
}

// NewKeeper makes a keeper that expects every expert equally often, before the
// first layer. It fails on a shape that is not valid.
func NewKeeper(shape layout.Shape) (*Keeper, error) {
	if err := shape.Validate(); err != nil {
		return nil, fmt.Errorf("router: keeper: %w", err)
	}
	k := &Keeper{layers: shape.Layers, experts: shape.Experts, keys: make([]float64, shape.Count()), rates: make([]float32, shape.Count()),
		distance: make([]atomic.Int32, shape.Layers)}
	k.least = leastRate * float64(shape.TopK) / float64(shape.Experts)
	k.Enter(-1)
	for i := range k.keys {
		k.rates[i] = float32(shape.TopK) / float32(shape.Experts)
		k.keys[i] = k.key(k.rates[i], k.rates[i])
	}
	return k, nil
}

// rateGain is the share that the latest forecast has in the rate of an expert.
// Smoothing it keeps more hits than taking the latest for the rate, since what
// foretells one use (say that the last token used it) says less of the ones after.
const rateGain = 0.5

// Set replaces a layer's forecast of a whole pass ahead: for each expert the
// probability of use at the next execution of the layer, as History.Score gives
// it once the layer was observed in this pass. Call it once a pass for each
// layer. An expert that is not used then falls back to its rate, a smoothed
// probability, so its next use is expected
//
//	distance + (1 - p) × layers ÷ rate
//
// layers from now. A rate counts as at least a quarter of an even one.
func (k *Keeper) Set(layer int, p []float32) {
	keys, rates := k.Keys(layer), k.rates[layer*k.experts:][:k.experts]
	for e := range min(len(p), len(keys)) {
		rates[e] += (p[e] - rates[e]) * rateGain
		keys[e] = k.key(p[e], rates[e])
	}
}

// SetNext says what is forecast for the layer's next execution alone, from
// what this pass has shown so far. Rates stay as they are.
func (k *Keeper) SetNext(layer int, next []float32) {
	keys, rates := k.Keys(layer), k.rates[layer*k.experts:][:k.experts]
	for e := range min(len(next), len(keys)) {
		keys[e] = k.key(next[e], rates[e])
	}
}

// SetOutlook replaces a layer's keys by an outlook (see Outlooker): the later the
// equally certain single use that would count as much.
func (k *Keeper) SetOutlook(layer int, outlook []float32) {
	keys := k.Keys(layer)
	scale := float32(float64(k.layers) / math.Log(OutlookDiscount))
	for e := range min(len(outlook), len(keys)) {
		keys[e] = float64(scale * fastLog(float32(clamp(outlook[e]))))
	}
}

// leastRate is the share of an even rate, top-k of all experts, that the rate of
// an expert is at least taken for: without it a seldom used expert would go first
// however sure its next use is.
const leastRate = 0.25

func (k *Keeper) key(p, rate float32) float64 {
	return float64(k.layers) * (1 - clamp(p)) / max(clamp(rate), k.least)
}

// Enter says where the sequences that run are: of each, the layer whose routing
// is known latest, or -1 before the first. That layer's own next execution is a
// whole cycle away, that of the layer after it one; of several sequences the
// nearest counts.
func (k *Keeper) Enter(positions ...int) {
	for layer := range k.distance {
		nearest := k.layers
		for _, position := range positions {
			d := layer - position
			if d <= 0 {
				d += k.layers
			}
			nearest = min(nearest, d)
		}
		k.distance[layer].Store(int32(nearest))
	}
}

// Keys is one number for each expert of the layer, the larger the later it is
// expected. The slice is the keeper's own and changes with Set.
func (k *Keeper) Keys(layer int) []float64 { return k.keys[layer*k.experts:][:k.experts] }

// Expect is the number of layer executions until the next use of an expert of
// layer with this key, with those that are sure to pass counted double.
func (k *Keeper) Expect(layer int, key float64) float64 {
	return distanceWeight*float64(k.Distance(layer)) + key
}

// distanceWeight is what the distance to a layer's next execution counts against the
// wait beyond it, which is only expected: that of the two which is certain. Of 1 to 8
// it kept the most hits on recorded traces.
const distanceWeight = 2

// Distance is the number of layer executions until layer executes next, 1 to
// the number of layers.
func (k *Keeper) Distance(layer int) int { return int(k.distance[layer].Load()) }

// Join merges one more sequence's forecast p into dst: an expert is used
// unless no sequence uses it.
func Join(dst, p []float32) {
	for e := range min(len(dst), len(p)) {
		dst[e] = 1 - (1-dst[e])*(1-p[e])
	}
}
