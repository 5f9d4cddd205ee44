package refmodel

import (
	"math"

	"github.com/viterin/vek/vek32"
)

// cache holds keys and values of the sequence so far, [block][position][KV
// head][dim] in float32. It grows with the sequence, by doubling.
type cache struct {
	width        int // floats of a position
	keys, values [][]float32
	length       int // positions that are complete in all blocks
}

func newCache(c Config) cache {
	return cache{width: c.keys(), keys: make([][]float32, c.Blocks), values: make([][]float32, c.Blocks)}
}

// extend makes room for n more positions in a block and returns their rows.
// Until length moves on, a repeated pass gets the same rows.
func (c *cache) extend(block, n int) (keys, values []float32) {
	start, end := c.length*c.width, (c.length+n)*c.width
	c.keys[block] = growTo(c.keys[block], end)
	c.values[block] = growTo(c.values[block], end)
	return c.keys[block][start:end], c.values[block][start:end]
}

// growTo gives s the length n and keeps its contents.
func growTo(s []float32, n int) []float32 {
	if n <= cap(s) {
		return s[:n]
	}
	grown := make([]float32, n, max(n, 2*cap(s)))
	copy(grown, s)
	return grown
}

// attend adds the attention of block b to the residual stream of n tokens.
func (r *runner) attend(b, n int) {
	w, c, s := &r.model.blocks[b], r.model.Config, &r.scratch
	rmsNormRows(s.normed, s.stream, w.attentionNorm, c.NormEps)

	keys, values := r.cache.extend(b, n)
	w.query.apply(s.query, s.normed)
	w.key.apply(keys, s.normed)
	w.value.apply(values, s.normed)
	rmsNormRows(s.query, s.query, w.queryNorm, c.NormEps)
	rmsNormRows(keys, keys, w.keyNorm, c.NormEps)
	for t := range n {
		r.rope.rotate(s.query[t*c.queries():(t+1)*c.queries()], t)
		r.rope.rotate(keys[t*c.keys():(t+1)*c.keys()], t)
	}
	for t := range n {
		for head := range c.Heads {
			r.attendHead(b, t, head)
		}
	}
	w.attention.apply(s.normed, s.heads)
	accumulate(s.stream, s.normed, 1)
}

// attendHead computes one head of one token over all positions up to its own.
func (r *runner) attendHead(b, t, head int) {
	c, s := r.model.Config, &r.scratch
	dim, width := c.HeadDim, c.keys()
	shared := head / (c.Heads / c.KVHeads) * dim
	positions := r.cache.length + t + 1
	scale := float32(1 / math.Sqrt(float64(dim)))

	at := t*c.queries() + head*dim
	query, out := s.query[at:at+dim], s.heads[at:at+dim]
	s.scores = growTo(s.scores, positions)
	keys, values := r.cache.keys[b], r.cache.values[b]
	for p := range positions {
		row := p*width + shared
		s.scores[p] = scale * vek32.Dot(query, keys[row:row+dim])
	}
	softmax(s.scores)
	clear(out)
	for p, weight := range s.scores {
		row := p*width + shared
		accumulate(out, values[row:row+dim], weight)
	}
}
