package router

import (
	"fmt"
	"math"
	"slices"

	"outrider/trace"
)

// EvalOptions says how to evaluate a predictor. The zero value replays the
// whole trace, with token ids where it has them.
type EvalOptions struct {
	MaxTokens int // tokens replayed; 0 means all
}

// Evaluation is how well a predictor forecast each layer of each token right
// after the layer before was observed in the same pass, learning as it went.
// Cold start counts.
type Evaluation struct {
	Predictor string `json:"predictor"`
	Model     string `json:"model"`
	Tokens    int    `json:"tokens"`
	// Overall is the mean over all layers but the first, which has no layer
	// before it. With a single layer it is that layer's.
	Overall Recall `json:"overall"`
	// Layers holds one entry a layer. The first is forecast from the pass's
	// token id, if that is known, and earlier passes.
	Layers []Recall `json:"layers"`
}

// Recall is the share of the experts used that were among those scored highest.
type Recall struct {
	AtK     float64 `json:"recall_at_k"`    // among the top-k highest scores
	At1p5K  float64 `json:"recall_at_1.5k"` // among 1.5 × top-k, rounded up
	At2K    float64 `json:"recall_at_2k"`   // among 2 × top-k
	LogLoss float64 `json:"log_loss"`       // mean over experts, in nats; scores are clamped to 1e-6 … 1-1e-6
}

func (r *Recall) add(o Recall) {
	r.AtK += o.AtK
	r.At1p5K += o.At1p5K
	r.At2K += o.At2K
	r.LogLoss += o.LogLoss
}

func (r *Recall) divide(n float64) {
	r.AtK /= n
	r.At1p5K /= n
	r.At2K /= n
	r.LogLoss /= n
}

// Evaluate replays a trace, one decoded token at a time, through a predictor
// that is best fresh: it learns from the replay. It fails on an empty trace.
func Evaluate(p Predictor, t *trace.Trace, o EvalOptions) (*Evaluation, error) {
	n := t.Len()
	if o.MaxTokens > 0 {
		n = min(n, o.MaxTokens)
	}
	shape := t.Header.Shape
	if err := shape.Validate(); err != nil {
		return nil, fmt.Errorf("router: evaluate: %w", err)
	}
	if n == 0 {
		return nil, fmt.Errorf("router: evaluate: the trace of %q has no tokens", t.Header.Model)
	}
	e := &Evaluation{Predictor: p.Name(), Model: t.Header.Model, Tokens: n, Layers: make([]Recall, shape.Layers)}
	replay := NewHistories(p, t, n)
	p32 := make([]float32, shape.Experts)
	for i := range n {
		h := replay.Begin(i)
		for l := range shape.Layers {
			h.Score(l, p32)
			choice := replay.Choice(i, l)
			e.Layers[l].add(recall(p32, choice[0].Experts, shape.TopK))
			h.Observe(l, choice)
		}
	}
	first := min(1, shape.Layers-1)
	for l := range e.Layers {
		e.Layers[l].divide(float64(n))
		if l >= first {
			e.Overall.add(e.Layers[l])
		}
	}
	e.Overall.divide(float64(shape.Layers - first))
	return e, nil
}

// Found is the share of the experts used that are among the k highest scores,
// of equal scores those with the lower index; 1 if none was used.
func Found(p []float32, used []int32, k int) float64 {
	if len(used) == 0 {
		return 1
	}
	found := 0
	for _, e := range used {
		if rank(p, e) < k {
			found++
		}
	}
	return float64(found) / float64(len(used))
}

// rank is how many experts score higher than e.
func rank(p []float32, e int32) int {
	n, own := 0, p[e]
	for i, x := range p {
		if x > own || (x == own && i < int(e)) {
			n++
		}
	}
	return n
}

func recall(p []float32, used []int32, k int) Recall {
	out := Recall{AtK: Found(p, used, k), At1p5K: Found(p, used, (3*k+1)/2), At2K: Found(p, used, 2*k)}
	for e, q := range p {
		x := min(max(float64(q), 1e-6), 1-1e-6)
		if !slices.Contains(used, int32(e)) {
			x = 1 - x
		}
		out.LogLoss -= math.Log(x) / float64(len(p))
	}
	return out
}
