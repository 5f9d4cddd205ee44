package refmodel

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Sampler chooses the next token from the logits, which it does not change or keep.
type Sampler interface {
	Sample(logits []float32) int32
}

// Greedy chooses the token with the largest logit, of equals the lower id.
type Greedy struct{}

var (
	_ Sampler = Greedy{}
	_ Sampler = (*Nucleus)(nil)
)

// Sample implements Sampler.
func (Greedy) Sample(logits []float32) int32 {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return int32(best)
}

// NucleusOptions configures seeded sampling.
type NucleusOptions struct {
	// Temperature divides the logits; 0 means 1. Greedy is what a tiny one tends to.
	Temperature float64
	// TopP keeps the likeliest tokens whose probabilities first reach this
	// sum; 0 means 1, all tokens.
	TopP float64
	// Seed makes the choices repeatable.
	Seed uint64
}

// Nucleus samples by temperature and top-p from a PCG generator: equal seeds
// and logits give equal tokens. For one goroutine.
type Nucleus struct {
	temperature, topP float64
	random            *rand.Rand
	weights           []float64 // by id
	order             []int32
}

// NewNucleus returns a sampler, or an error for an option out of range.
func NewNucleus(o NucleusOptions) (*Nucleus, error) {
	if o.Temperature == 0 {
		o.Temperature = 1
	}
	if o.TopP == 0 {
		o.TopP = 1
	}
	if !(o.Temperature > 0) || math.IsInf(o.Temperature, 0) {
		return nil, fmt.Errorf("refmodel: temperature %v, want a positive number", o.Temperature)
	}
	if !(o.TopP > 0 && o.TopP <= 1) {
		return nil, fmt.Errorf("refmodel: top-p %v, want more than 0 and at most 1", o.TopP)
	}
	return &Nucleus{temperature: o.Temperature, topP: o.TopP, random: rand.New(rand.NewPCG(o.Seed, 0))}, nil
}

// Sample implements Sampler.
func (n *Nucleus) Sample(logits []float32) int32 {
	n.weights, n.order = resize(n.weights, len(logits)), resize(n.order, len(logits))
	most := logits[Greedy{}.Sample(logits)]
	var total float64
	for i, v := range logits {
		n.weights[i] = math.Exp(float64(v-most) / n.temperature)
		n.order[i] = int32(i)
		total += n.weights[i]
	}
	slices.SortFunc(n.order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(n.weights[b], n.weights[a]), cmp.Compare(a, b))
	})
	kept, sum := 0, 0.0
	for kept < len(n.order) && (kept == 0 || sum < n.topP*total) {
		sum += n.weights[n.order[kept]]
		kept++
	}
	point := n.random.Float64() * sum
	for _, id := range n.order[:kept] {
		if point -= n.weights[id]; point < 0 {
			return id
		}
	}
	return n.order[kept-1]
}
