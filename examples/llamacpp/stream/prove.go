package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"outrider/examples/llamacpp/ggml"
	"outrider/examples/llamacpp/llama"
)

// errNumbers: the architecture does more with the numbers of the chosen experts than to
// take their weights, so that slots cannot take their place.
var errNumbers = errors.New("the numbers of experts are used for more than their weights")

// proof watches one pass of one token node by node. It learns whether llama.cpp tells of
// every layer's router before it computes the layer's experts, and what else it does with
// the router's choice.
type proof struct {
	plan     *plan
	weighted bool                 // probabilities can be seen
	seen     []bool               // by layer
	chosen   map[*ggml.Tensor]int // the choice and the memory that it lies in: its block
	held     map[int]bool         // blocks whose experts would be held by now
	numbers  error
	err      error
}

// prove runs a token through a context of its own. What the experts compute then is of no
// importance, but the nodes that use their numbers otherwise are computed too: they get
// numbers that are small enough for anything.
func (m *Model) prove(ctx context.Context) error {
	layers := m.Runtime.Shape().Layers
	p := &proof{plan: m.plan, weighted: true, seen: make([]bool, layers), chosen: map[*ggml.Tensor]int{}, held: map[int]bool{}}
	d := &Decoder{model: m, ctx: ctx, items: make([]llama.Item, 1), layer: -1}
	d.sessions = append(d.sessions, m.Runtime.NewSession())
	watch := llama.NewWatch(func(t *ggml.Tensor, ask bool) bool {
		if ask {
			return p.ask(t)
		}
		return p.told(d, t)
	})
	defer watch.Close()
	watch.Pass(ggml.PassAll)
	c, err := m.NewContext(llama.ContextOptions{Tokens: 32, Batch: 1, Threads: 1, Watch: watch})
	if err != nil {
		return err
	}
	d.Context = c
	d.items[0].Logits = true
	d.work.group(d.items, 1)
	err = errors.Join(d.compute(d.items), d.err)
	d.use.Release()
	if p.err != nil {
		err = p.err
	}
	err = errors.Join(err, d.sessions[0].Close(), c.Close())
	if l := slices.Index(p.seen, false); err == nil && l >= 0 {
		err = fmt.Errorf("llama.cpp computes layer %d of the experts without telling what its router chose (node %sN): this architecture cannot be served", l, ggml.WeightsNode)
	}
	if err == nil && m.slots != nil {
		err = p.numbers
	}
	m.weighted = p.weighted
	return err
}

// ask looks at a node before it is computed.
func (p *proof) ask(t *ggml.Tensor) bool {
	r, err := readRouting(t, 1<<30)
	if err == nil {
		if p.held[r.block] {
			return false // a second choice of the block: see look
		}
		root := r.chosen
		if root.ViewOf != nil {
			root = root.ViewOf
		}
		p.chosen[r.chosen], p.chosen[root] = r.block, r.block
		p.held[r.block] = true
		return true
	}
	if t.ViewOf != nil {
		if block, ok := p.chosen[t.ViewOf]; ok { // another view of the same memory
			p.chosen[t] = block
			return false
		}
	}
	p.look(t)
	return false
}

// look finds nodes that compute experts before they are held or by another choice, and
// those that use the choice for something else afterwards.
func (p *proof) look(t *ggml.Tensor) {
	weights, stacked := p.stacked(t)
	for i, x := range t.Sources {
		if x == nil || i == 0 {
			continue
		}
		if _, ok := p.chosen[x]; ok && !stacked && p.numbers == nil {
			p.numbers = fmt.Errorf("%w: node %q takes %q by them", errNumbers, t.Name(), t.Sources[0].Name())
		}
	}
	if !stacked || p.err != nil {
		return
	}
	if ids := t.Sources[2]; ids != nil {
		if _, ok := p.chosen[ids]; !ok {
			p.err = fmt.Errorf("llama.cpp computes experts (node %q) by other numbers (%q) than the router's choice that it told: this architecture cannot be served", t.Name(), ids.Name())
		}
	}
	for block, layer := range p.plan.layers {
		if layer == weights.layer && !p.held[block] {
			p.err = fmt.Errorf("llama.cpp computes the experts of block %d (node %q) before it tells the gate weights (%s%d): this architecture cannot be served", block, t.Name(), ggml.WeightsNode, block)
		}
	}
}

// stacked finds the stacked tensor that a node computes with: matrices are its first
// source (mul_mat_id), biases its second (add_id). The numbers are the third.
func (p *proof) stacked(t *ggml.Tensor) (s stacked, ok bool) {
	for _, x := range t.Sources[:2] {
		if x != nil && !ok {
			s, ok = p.plan.stacked[x.Name()]
		}
	}
	return s, ok
}

// told brings the experts of a layer, as a decoder does.
func (p *proof) told(d *Decoder, t *ggml.Tensor) bool {
	r, err := readRouting(t, d.model.Runtime.Shape().Experts)
	if err == nil {
		if layer, ok := p.plan.layers[r.block]; ok {
			p.seen[layer] = true
			p.weighted = p.weighted && r.probs != nil
		}
		err = d.serve(t)
	}
	if err == nil && d.model.slots != nil {
		for i := range r.chosen.Dims[1] {
			for j, row := 0, r.chosen.Int32s(i); j < len(row); j++ {
				row[j] = int32(j)
			}
		}
	}
	if err != nil {
		p.err = err
	}
	return err == nil
}
