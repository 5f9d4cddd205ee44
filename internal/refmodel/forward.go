package refmodel

import (
	"context"
	"fmt"
	"math"

	"outrider/router"
	"outrider/trace"
)

// runner runs one sequence through the model: a pass at a time, on one goroutine.
type runner struct {
	model   *Model
	experts experts
	onRoute func(layer int, choices []router.Choice)
	rope    rope
	cache   cache
	logits  []float32 // of the last position of the last pass
	scratch scratch
	tensors tensors
}

// scratch is the buffers of a pass, kept from pass to pass.
type scratch struct {
	stream  []float32 // residual stream, [token][hidden]
	normed  []float32 // normed copy of it; also the attention's output
	query   []float32 // [token][head][dim]
	heads   []float32 // attention of each head, as query
	scores  []float32 // of one head over all positions
	routing routing
	arrived []bool    // experts of the layer that came
	outputs []float32 // of each (token, rank) slot, [slot][hidden]
	inner   []float32 // gate and up products of one expert
	row     []float32 // one dequantised row
	rows    [4][][]float32
}

func newRunner(m *Model) *runner {
	c := m.Config
	return &runner{
		model:  m,
		rope:   newRope(c.HeadDim, c.RopeBase),
		cache:  newCache(c),
		logits: make([]float32, c.Vocab),
	}
}

// pass runs tokens, which follow the cached positions, through all layers. On
// success they are part of the sequence and logits holds the forecast after
// the last one; on an error the sequence is as before and the pass may be repeated.
func (r *runner) pass(ctx context.Context, phase trace.Phase, tokens []int32) error {
	n, c := len(tokens), r.model.Config
	if r.experts == nil {
		return fmt.Errorf("refmodel: %w: Reset starts a sequence", ErrClosed)
	}
	for i, id := range tokens {
		if id < 0 || int(id) >= c.Vocab {
			return fmt.Errorf("refmodel: %w: token %d of the pass is %d, the vocabulary has %d", ErrToken, i, id, c.Vocab)
		}
	}
	r.scratch.prepare(c, n)
	r.rope.prepare(r.cache.length, n)
	for t, id := range tokens {
		copy(r.scratch.stream[t*c.Hidden:], r.model.embedding.row(int(id)))
	}
	r.experts.step(phase, tokens)
	for b := range r.model.blocks {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("refmodel: block %d: %w", b, context.Cause(ctx))
		}
		r.attend(b, n)
		if err := r.mix(ctx, b, n); err != nil {
			return err
		}
	}
	if err := r.predict(n); err != nil {
		return err
	}
	r.cache.length += n
	return nil
}

// predict computes the logits after the last of n tokens.
func (r *runner) predict(n int) error {
	m, c := r.model, r.model.Config
	last := r.scratch.normed[:c.Hidden]
	rmsNorm(last, r.scratch.stream[(n-1)*c.Hidden:n*c.Hidden], m.outputNorm, c.NormEps)
	m.output.apply(r.logits, last)
	for id, v := range r.logits {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return fmt.Errorf("refmodel: %w: logit of token %d at position %d is %v (verify the checkpoint)",
				ErrNotFinite, id, r.cache.length+n-1, v)
		}
	}
	return nil
}

// prepare sizes the buffers for n tokens.
func (s *scratch) prepare(c Config, n int) {
	s.stream = resize(s.stream, n*c.Hidden)
	s.normed = resize(s.normed, n*c.Hidden)
	s.query = resize(s.query, n*c.queries())
	s.heads = resize(s.heads, n*c.queries())
	s.outputs = resize(s.outputs, n*c.TopK*c.Hidden)
	s.routing.prepare(c, n)
}

// views is four lists of n rows for one expert: input, gate, up, output.
func (s *scratch) views(n int) (in, gates, ups, out [][]float32) {
	for i := range s.rows {
		s.rows[i] = resize(s.rows[i], n)
	}
	return s.rows[0], s.rows[1], s.rows[2], s.rows[3]
}
