package router

import (
	"math/rand/v2"

	"outrider/layout"
	"outrider/trace"
)

// pass is one decoded token of a synthetic model.
type pass struct {
	tokens  []int32
	choices []Choice // by layer
}

func (p pass) layer(l int) []Choice { return p.choices[l : l+1] }

// synthetic makes passes of a model whose first layer follows the token and
// whose later layers follow the layer before, each with noise: per layer a
// fixed map from experts to experts, left one time in four for a random one.
func synthetic(shape layout.Shape, n int, seed uint64) []pass {
	rng := rand.New(rand.NewPCG(seed, 1))
	next := make([][]int, shape.Layers)
	for l := range next {
		next[l] = rng.Perm(shape.Experts)
	}
	const vocabulary = 64
	start := make([][]int, vocabulary)
	for i := range start {
		start[i] = rng.Perm(shape.Experts)[:shape.TopK]
	}
	out := make([]pass, n)
	for i := range out {
		token := int(rng.ExpFloat64()*8) % vocabulary
		out[i].tokens = []int32{int32(token)}
		before := start[token]
		for l := range shape.Layers {
			set := make([]int32, 0, shape.TopK)
			for _, e := range before {
				e = next[l][e]
				if rng.IntN(4) == 0 {
					e = rng.IntN(shape.Experts)
				}
				for contains(set, e) {
					e = (e + 1) % shape.Experts
				}
				set = append(set, int32(e))
			}
			out[i].choices = append(out[i].choices, Choice{Experts: set})
			before = before[:0:0]
			for _, e := range set {
				before = append(before, int(e))
			}
		}
	}
	return out
}

func contains(set []int32, e int) bool {
	for _, x := range set {
		if int(x) == e {
			return true
		}
	}
	return false
}

// recorded is a trace of these passes, one sequence, with token ids if told.
func recorded(shape layout.Shape, passes []pass, tokens bool) *trace.Trace {
	t, err := trace.NewTrace(trace.Header{Model: "synthetic", Shape: shape, Phase: trace.Decode, Tokens: tokens})
	if err != nil {
		panic(err)
	}
	for i, p := range passes {
		a := trace.Activation{Pos: int64(i), Phase: trace.Decode, Token: p.tokens[0]}
		for _, c := range p.choices {
			a.Experts = append(a.Experts, c.Experts...)
		}
		if err := t.Append(&a); err != nil {
			panic(err)
		}
	}
	return t
}
