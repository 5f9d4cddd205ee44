package router

import (
	"context"
	"fmt"
	"time"

	"outrider/layout"
	"outrider/trace"
)

// EvalOptions says how to evaluate a predictor. The zero value replays the
// whole trace, with token ids where it has them.
type EvalOptions struct {
	MaxTokens int // tokens counted; 0 means all that are left
	// Warm is how many tokens are replayed first, learned from but not counted.
	Warm int
	// Ahead asks for the recall of forecasts made so many layers ahead, 1 to one
	// less than there are layers, or BeforePass. It costs a score each.
	Ahead []int

	Progress func(tokens int) // told now and then how many tokens were replayed; nil: nobody
	Now      func() time.Time // the clock that Cost is measured by; nil: time.Now
}

// BeforePass stands for forecasts made when a pass begins, before its first
// layer: where token ids are told, the pass's is known.
const BeforePass = 0

// Evaluation is how well a predictor forecast each layer of each token right
// after the layer before was observed in the same pass, learning as it went.
// Cold start counts, unless tokens were replayed to warm up.
type Evaluation struct {
	Predictor string `json:"predictor"`
	Model     string `json:"model"`
	Tokens    int    `json:"tokens"` // counted
	// Overall is the mean over all layers but the first, which has no layer
	// before it. With a single layer it is that layer's.
	Overall Recall `json:"overall"`
	// Layers holds one entry a layer. The first is forecast from the pass's
	// token id, if that is known, and earlier passes.
	Layers []Recall `json:"layers"`
	// Calibration and ColdStart are over the layers of Overall.
	Calibration Calibration   `json:"calibration"`
	ColdStart   []ColdStart   `json:"cold_start"` // of 50, 200 and 1000 tokens, as many as were counted
	Ahead       []AheadRecall `json:"ahead"`      // as asked for
	Cost        Cost          `json:"cost"`
}

// ColdStart is the recall over the first tokens that were counted.
type ColdStart struct {
	Tokens int     `json:"tokens"`
	AtK    float64 `json:"recall_at_k"`
}

// coldStarts are the tokens after which ColdStart is noted.
var coldStarts = []int{50, 200, 1000}

// AheadRecall is the recall of forecasts made so many layers ahead. Those of
// BeforePass are of the layers of Overall, others of the layers that have so many
// before them in the pass.
type AheadRecall struct {
	Layers int     `json:"layers"` // or BeforePass
	AtK    float64 `json:"recall_at_k"`
}

// Cost is what the predictor's calls took by the clock: it moves with whatever
// else the machine does, and each call's holds the reading of the clock itself,
// some 0.05 µs.
type Cost struct {
	Score time.Duration `json:"score_ns"` // mean of one layer: Score of the layer that comes next
	Learn time.Duration `json:"learn_ns"` // mean of one layer: Observe
	Total time.Duration `json:"total_ns"` // of both, over all layers and tokens that were counted
}

// Evaluate replays a trace, one decoded token at a time, through a predictor
// that is best fresh: it learns from the replay. It fails on a trace without
// tokens to count, on options out of range (ErrOption), and with the context's
// error when that ends.
func Evaluate(ctx context.Context, p Predictor, t *trace.Trace, o EvalOptions) (*Evaluation, error) {
	n, err := o.check(t)
	if err != nil {
		return nil, fmt.Errorf("router: evaluate: %w", err)
	}
	e := newEvaluator(p, t, n, o)
	for i := range n {
		if i%64 == 0 {
			if o.Progress != nil {
				o.Progress(i)
			}
			if ctx.Err() != nil {
				return nil, fmt.Errorf("router: evaluate: %s stopped at token %d: %w", p.Name(), i, context.Cause(ctx))
			}
		}
		if i < o.Warm {
			e.learn(i)
			continue
		}
		e.count(i)
	}
	return e.result(), nil
}

// check is how many tokens are replayed.
func (o EvalOptions) check(t *trace.Trace) (int, error) {
	shape := t.Header.Shape
	if err := shape.Validate(); err != nil {
		return 0, err
	}
	if o.MaxTokens < 0 || o.Warm < 0 {
		return 0, fmt.Errorf("%w: tokens are %d and %d to warm up, want 0 or more", ErrOption, o.MaxTokens, o.Warm)
	}
	for _, d := range o.Ahead {
		if d < 0 || d >= shape.Layers {
			return 0, fmt.Errorf("%w: %d layers ahead in a model of %d, want 1 to %d, or 0 for before the pass", ErrOption, d, shape.Layers, shape.Layers-1)
		}
	}
	left := t.Len() - o.Warm
	if left <= 0 {
		return 0, fmt.Errorf("%w: the trace of %q has %d tokens and %d are to warm up: none is left to count", ErrOption, t.Header.Model, t.Len(), o.Warm)
	}
	if o.MaxTokens > 0 {
		left = min(left, o.MaxTokens)
	}
	return o.Warm + left, nil
}

// evaluator is one replay.
type evaluator struct {
	shape  layout.Shape
	opts   EvalOptions
	replay *Histories
	judge  *Judge
	out    *Evaluation

	first   int // layer that Overall begins with
	p       []float32
	overall float64   // sum of recall@K over layers and tokens
	ahead   []float64 // the same, by distance that was asked for
}

func newEvaluator(p Predictor, t *trace.Trace, n int, o EvalOptions) *evaluator {
	if o.Now == nil {
		o.Now = time.Now
	}
	shape := t.Header.Shape
	return &evaluator{
		shape: shape, opts: o, replay: NewHistories(p, t, n), judge: NewJudge(shape), first: min(1, shape.Layers-1),
		out:   &Evaluation{Predictor: p.Name(), Model: t.Header.Model, Layers: make([]Recall, shape.Layers)},
		p:     make([]float32, shape.Experts),
		ahead: make([]float64, len(o.Ahead)),
	}
}

// learn replays a token that does not count. It asks for the same forecasts:
// predictors may learn from what became of them.
func (e *evaluator) learn(i int) {
	h := e.replay.Begin(i)
	for l := range e.shape.Layers {
		h.Score(l, e.p)
		h.Observe(l, e.replay.Choice(i, l))
	}
}

// count replays a token and judges what was forecast of it.
func (e *evaluator) count(i int) {
	h := e.replay.Begin(i)
	for l := range e.shape.Layers {
		e.lookAhead(h, i, l)
		begun := e.opts.Now()
		h.Score(l, e.p)
		scored := e.opts.Now()
		choice := e.replay.Choice(i, l)
		e.note(l, choice[0].Experts)
		learning := e.opts.Now()
		h.Observe(l, choice)
		e.out.Cost.Learn += e.opts.Now().Sub(learning)
		e.out.Cost.Score += scored.Sub(begun)
	}
	e.out.Tokens++
	for _, n := range coldStarts {
		if e.out.Tokens == n {
			e.out.ColdStart = append(e.out.ColdStart, ColdStart{Tokens: n, AtK: e.overall / float64(n*(e.shape.Layers-e.first))})
		}
	}
}

// note judges the forecast of a layer.
func (e *evaluator) note(layer int, used []int32) {
	if layer < e.first {
		e.out.Layers[layer].Add(e.judge.Recall(e.p, used, nil))
		return
	}
	r := e.judge.Recall(e.p, used, &e.out.Calibration)
	e.out.Layers[layer].Add(r)
	e.overall += r.AtK
}

// lookAhead judges the other distances before layer next of token i runs.
func (e *evaluator) lookAhead(h History, i, next int) {
	for at, d := range e.opts.Ahead {
		from, to := next+d-1, next+d
		switch {
		case d == BeforePass && next == 0:
			from, to = e.first, e.shape.Layers
		case d == BeforePass || next == 0 || to > e.shape.Layers:
			continue
		}
		for l := from; l < to; l++ {
			h.Score(l, e.p)
			e.ahead[at] += Found(e.p, e.replay.Choice(i, l)[0].Experts, e.shape.TopK)
		}
	}
}

// result turns sums into means.
func (e *evaluator) result() *Evaluation {
	out := e.out
	tokens := float64(out.Tokens)
	for l := range out.Layers {
		out.Layers[l].Divide(tokens)
		if l >= e.first {
			out.Overall.Add(out.Layers[l])
		}
	}
	out.Overall.Divide(float64(e.shape.Layers - e.first))
	out.Calibration.Finish()
	for at, d := range e.opts.Ahead {
		layers := e.shape.Layers - max(d, e.first)
		out.Ahead = append(out.Ahead, AheadRecall{Layers: d, AtK: e.ahead[at] / (tokens * float64(layers))})
	}
	calls := time.Duration(out.Tokens * e.shape.Layers)
	out.Cost.Total = out.Cost.Score + out.Cost.Learn
	out.Cost.Score /= calls
	out.Cost.Learn /= calls
	return out
}
