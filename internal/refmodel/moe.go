package refmodel

import (
	"context"
	"fmt"

	"outrider/router"
)

// routing is what the router of one layer chose for the tokens of a pass, and
// the same turned round: which (token, rank) slots each expert serves. Slot
// t*TopK+rank is the place of that expert's output.
type routing struct {
	probabilities []float32 // [token][expert]
	ids           []int32   // [token][rank]
	weights       []float32 // [token][rank]
	choices       []router.Choice
	slots         []int32 // slots by expert, in order of token
	first         []int32 // expert e serves slots[first[e]:first[e+1]]
}

// mix adds the MoE layer of block b to the residual stream of n tokens.
// Each expert is computed when it arrives, for all tokens that share it; its
// outputs are kept apart and summed in rank order, so that the result does not
// depend on the order of arrival.
func (r *runner) mix(ctx context.Context, b, n int) error {
	w, c, s := &r.model.blocks[b], r.model.Config, &r.scratch
	rmsNormRows(s.normed, s.stream, w.expertNorm, c.NormEps)
	if n == 1 {
		// A chunk of a prompt uses most experts anyway.
		r.experts.look(b, s.normed)
	}
	w.router.apply(s.routing.probabilities, s.normed)
	s.routing.choose(c, n)
	if r.onRoute != nil {
		r.onRoute(b, s.routing.choices)
	}
	if err := r.computeExperts(ctx, b); err != nil {
		return fmt.Errorf("refmodel: block %d: %w", b, err)
	}
	for t := range n {
		row := s.stream[t*c.Hidden : (t+1)*c.Hidden]
		sum := s.normed[:c.Hidden]
		clear(sum)
		for rank := range c.TopK {
			slot := t*c.TopK + rank
			accumulate(sum, s.outputs[slot*c.Hidden:(slot+1)*c.Hidden], s.routing.weights[slot])
		}
		accumulate(row, sum, 1)
	}
	return nil
}

// computeExperts runs the chosen experts as they arrive, and checks that each came exactly once.
func (r *runner) computeExperts(ctx context.Context, layer int) error {
	c, s := r.model.Config, &r.scratch
	s.arrived = resize(s.arrived, c.Experts)
	clear(s.arrived)
	err := r.experts.each(ctx, layer, s.routing.choices, func(e expert) error {
		index := e.Index()
		if index < 0 || index >= c.Experts || s.arrived[index] || len(s.routing.served(index)) == 0 {
			return fmt.Errorf("%w: expert %d arrived unasked or twice", ErrExperts, index)
		}
		s.arrived[index] = true
		if err := r.computeExpert(e, s.routing.served(index)); err != nil {
			return fmt.Errorf("expert %d: %w", index, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for e := range c.Experts {
		if !s.arrived[e] && len(s.routing.served(e)) > 0 {
			return fmt.Errorf("%w: expert %d did not arrive", ErrExperts, e)
		}
	}
	return nil
}

// prepare sizes the buffers for n tokens.
func (g *routing) prepare(c Config, n int) {
	g.probabilities = resize(g.probabilities, n*c.Experts)
	g.ids = resize(g.ids, n*c.TopK)
	g.weights = resize(g.weights, n*c.TopK)
	g.choices = resize(g.choices, n)
	g.slots = resize(g.slots, n*c.TopK)
	g.first = resize(g.first, c.Experts+1)
}

// choose turns the router's logits in probabilities into choices: softmax over
// all experts, the TopK likeliest, their probabilities scaled to sum 1.
func (g *routing) choose(c Config, n int) {
	for t := range n {
		p := g.probabilities[t*c.Experts : (t+1)*c.Experts]
		ids := g.ids[t*c.TopK : (t+1)*c.TopK : (t+1)*c.TopK]
		weights := g.weights[t*c.TopK : (t+1)*c.TopK : (t+1)*c.TopK]
		softmax(p)
		topK(ids, p)
		var sum float32
		for rank, e := range ids {
			weights[rank] = p[e]
			sum += p[e]
		}
		for rank := range weights {
			weights[rank] /= sum
		}
		g.choices[t] = router.Choice{Experts: ids, Weights: weights}
	}
	g.invert(c.Experts)
}

// invert fills slots and first by counting.
func (g *routing) invert(experts int) {
	clear(g.first)
	for _, e := range g.ids {
		g.first[e+1]++
	}
	for e := range experts {
		g.first[e+1] += g.first[e]
	}
	for slot, e := range g.ids {
		g.slots[g.first[e]] = int32(slot)
		g.first[e]++
	}
	// Each entry has moved on to the start of the next expert: move back.
	copy(g.first[1:], g.first[:experts])
	g.first[0] = 0
}

// served is the slots of one expert; none if it was not chosen.
func (g *routing) served(e int) []int32 { return g.slots[g.first[e]:g.first[e+1]] }
