package stream

import (
	"errors"
	"fmt"

	"outrider/examples/llamacpp/ggml"
	"outrider/examples/llamacpp/llama"
	"outrider/router"
	"outrider/runtime"
)

// serve brings the experts of a layer and holds them until the next layer's choice. Of a
// block that chooses twice, the second time it is for weights that are dense here (prove).
func (d *Decoder) serve(t *ggml.Tensor) error {
	shape := d.model.Runtime.Shape()
	r, err := readRouting(t, shape.Experts)
	if err != nil {
		return err
	}
	layer, ok := d.model.plan.layers[r.block]
	if !ok || r.chosen.Dims[1] == 0 {
		return nil // experts of this block are dense weights here, or no token needs them
	}
	if layer == d.layer {
		return nil
	}
	err = d.arrived()
	d.use.Release()
	d.use, d.layer = runtime.Use{}, layer
	if err != nil {
		return err
	}
	tokens, err := d.tokensOf(int(r.chosen.Dims[1]))
	if err != nil {
		return fmt.Errorf("block %d: %w", r.block, err)
	}
	if err := d.work.read(r, tokens, shape.Experts); err != nil {
		return err
	}
	if held := d.capacity(layer); d.work.distinct > held {
		d.fits = d.work.prefix(held, shape.Experts)
		return errCut
	}
	d.lookAhead(layer, r)
	if d.model.overlap != nil {
		return d.bringUnder(layer)
	}
	if err := d.bring(layer); err != nil {
		return err
	}
	if d.model.slots != nil {
		d.work.renumber(r.chosen)
	}
	return nil
}

// bring asks for the experts, waits for them, and notes where they lie.
func (d *Decoder) bring(layer int) error {
	use, err := d.model.Runtime.Use(d.ctx, layer, d.work.routed(d.sessions))
	if err != nil {
		return err
	}
	d.use, d.began = use, true
	for ex, err := range use.Ready(d.ctx) {
		if errors.Is(err, runtime.ErrNeedsWaves) {
			return d.halve()
		}
		if err != nil {
			return err
		}
		if d.model.slots == nil {
			continue
		}
		if d.work.slot[ex.Index()], err = d.model.slots.number(ex); err != nil {
			return err
		}
	}
	return nil
}

// halve cuts the pass: the budget shrank meanwhile.
func (d *Decoder) halve() error {
	d.fits = max(len(d.items)/2, 1)
	return errCut
}

// lookAhead tells what the router saw. It is worth it for single tokens: a batch uses
// most of a layer's experts anyway.
func (d *Decoder) lookAhead(layer int, r routing) {
	if !d.look || r.hidden == nil || len(d.items) != 1 {
		return
	}
	if d.sessions[d.items[0].Sequence].Lookahead(layer, r.hidden.Float32s(0)) != nil {
		d.look = false // there are no routers: history has to do
	}
}

// tokensOf says which tokens of the batch a node's rows are of: of all, or behind the
// last attention only of those whose logits are wanted.
func (d *Decoder) tokensOf(rows int) ([]int32, error) {
	if rows == len(d.items) {
		return d.work.all, nil
	}
	if rows == len(d.work.wanted) {
		return d.work.wanted, nil
	}
	return nil, fmt.Errorf("the router chose for %d tokens, the batch has %d, of which %d have logits", rows, len(d.items), len(d.work.wanted))
}

// scratch is reused from layer to layer and pass to pass.
type scratch struct {
	all, wanted []int32   // tokens of the batch, by number
	tokens      [][]int32 // by sequence
	sequence    []int32   // of each token of the batch
	choices     [][]router.Choice
	ids         []int32
	weights     []float32
	ofToken     []router.Choice // by token of the batch
	stamp       []uint32        // by expert
	slot        []int32         // by expert: the number of its slot
	round       uint32
	distinct    int
	parts       []runtime.Routed
}

// group sorts a batch's tokens by sequence.
func (s *scratch) group(items []llama.Item, sequences int) {
	s.all, s.wanted, s.sequence = s.all[:0], s.wanted[:0], s.sequence[:0]
	for len(s.tokens) < sequences {
		s.tokens = append(s.tokens, nil)
		s.choices = append(s.choices, nil)
	}
	for i := range s.tokens {
		s.tokens[i] = s.tokens[i][:0]
	}
	for i, it := range items {
		s.all = append(s.all, int32(i))
		if it.Logits {
			s.wanted = append(s.wanted, int32(i))
		}
		s.sequence = append(s.sequence, it.Sequence)
		s.tokens[it.Sequence] = append(s.tokens[it.Sequence], it.Token)
	}
}

// read copies a router's choice: row i is of the token of that number in tokens.
func (s *scratch) read(r routing, tokens []int32, experts int) error {
	k := int(r.chosen.Dims[0])
	s.ids, s.weights = s.ids[:0], s.weights[:0]
	s.ofToken = append(s.ofToken[:0], make([]router.Choice, len(s.all))...)
	s.begin(experts)
	for i, token := range tokens {
		row := r.chosen.Int32s(int64(i))
		for _, e := range row {
			if e < 0 || int(e) >= experts {
				return fmt.Errorf("block %d: the router chose expert %d of %d", r.block, e, experts)
			}
			s.count(e)
		}
		s.ids = append(s.ids, row...)
		c := router.Choice{Experts: s.ids[len(s.ids)-k : len(s.ids) : len(s.ids)]}
		if r.probs != nil {
			s.weights = gates(s.weights, r.probs.Float32s(int64(i)), row)
			c.Weights = s.weights[len(s.weights)-k : len(s.weights) : len(s.weights)]
		}
		s.ofToken[token] = c
	}
	return nil
}

func (s *scratch) begin(experts int) {
	if len(s.stamp) < experts {
		s.stamp, s.slot = make([]uint32, experts), make([]int32, experts)
	}
	s.round++
	s.distinct = 0
}

func (s *scratch) count(e int32) {
	if s.stamp[e] != s.round {
		s.stamp[e] = s.round
		s.distinct++
	}
}

// experts lists the distinct experts of all choices, the lowest first.
func (s *scratch) experts(out []int32) []int32 {
	for e, stamp := range s.stamp {
		if stamp == s.round {
			out = append(out, int32(e))
		}
	}
	return out
}

// prefix is how many tokens from the first on need no more distinct experts.
func (s *scratch) prefix(most, experts int) int {
	s.begin(experts)
	for i, c := range s.ofToken {
		for _, e := range c.Experts {
			s.count(e)
		}
		if s.distinct > most {
			return max(i, 1)
		}
	}
	return len(s.ofToken)
}

// routed is what Runtime.Use takes.
func (s *scratch) routed(sessions []*runtime.Session) []runtime.Routed {
	s.parts = s.parts[:0]
	for seq := range s.tokens {
		s.choices[seq] = s.choices[seq][:0]
	}
	for i, c := range s.ofToken {
		seq := s.sequence[i]
		s.choices[seq] = append(s.choices[seq], c)
	}
	for seq, c := range s.choices {
		if len(c) > 0 {
			s.parts = append(s.parts, runtime.Routed{Session: sessions[seq], Choices: c})
		}
	}
	return s.parts
}

// renumber puts the numbers of slots in the place of those of experts, in llama.cpp's own
// memory: from here on its kernels take them for matrices of one long stack.
func (s *scratch) renumber(chosen *ggml.Tensor) {
	for i := range chosen.Dims[1] {
		row := chosen.Int32s(i)
		for j, e := range row {
			row[j] = s.slot[e]
		}
	}
}
