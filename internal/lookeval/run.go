package lookeval

import (
	"context"
	"fmt"
	"slices"

	"outrider/layout"
	"outrider/router"
)

// Options say what is measured. The zero value is three layers ahead over all
// tokens.
type Options struct {
	Ahead     int // most layers ahead; 0 means 3
	MaxTokens int // 0 means all
}

// Report is what was measured.
type Report struct {
	Tokens int   `json:"tokens"`
	Rows   []Row `json:"rows"`
}

// Row is one source of forecasts at one distance.
type Row struct {
	// Source is "lookahead" (the guess alone, by the order of its scores), the
	// predictor's name, its name and "no ids" (without token ids), or one of the
	// latter two with "+ lookahead".
	Source string `json:"source"`
	Ahead  int    `json:"ahead"` // layers: made when the router of so many layers before is known
	// RecallAtK and the next two are the shares of the experts used that were among
	// the K, 1.5 K and 2 K scored highest, over the layers that have a layer so far
	// before them.
	RecallAtK   float64 `json:"recall_at_k"`
	RecallAt15K float64 `json:"recall_at_1_5k"`
	RecallAt2K  float64 `json:"recall_at_2k"`
	// LogLoss is in nats an expert; nil of the guess alone, which has no
	// probabilities.
	LogLoss *float64 `json:"log_loss"`
	// CalibrationError is the mean distance between the probability and the share
	// that came true, over ten bins; nil as LogLoss.
	CalibrationError *float64  `json:"calibration_error"`
	Layers           []float64 `json:"layers"` // recall@K of each layer, 0 where not measured
}

// Run replays the input token by token, as decode passes, through predictors that
// fresh makes: they start from nothing and learn as they go, with and without the
// look-ahead and token ids. It fails on an empty trace, when fresh fails, and when
// ctx ends.
func Run(ctx context.Context, in *Input, fresh func(layout.Shape) (router.Predictor, error), o Options) (*Report, error) {
	n := in.Trace.Len()
	if o.MaxTokens > 0 {
		n = min(n, o.MaxTokens)
	}
	if n == 0 {
		return nil, fmt.Errorf("lookeval: the trace has no tokens")
	}
	if o.Ahead == 0 {
		o.Ahead = 3
	}
	o.Ahead = max(min(o.Ahead, in.Trace.Header.Shape.Layers-1), 0)
	o.MaxTokens = n
	report := &Report{Tokens: n}
	rows, err := raw(ctx, in, o)
	if err != nil {
		return nil, err
	}
	report.Rows = rows
	for _, ids := range []bool{false, true} {
		for _, look := range []bool{false, true} {
			p, err := fresh(in.Trace.Header.Shape)
			if err != nil {
				return nil, err
			}
			rows, err := learned(ctx, in, p, ids, look, o)
			if err != nil {
				return nil, err
			}
			report.Rows = append(report.Rows, rows...)
		}
	}
	return report, nil
}

// raw measures the guess alone.
func raw(ctx context.Context, in *Input, o Options) ([]Row, error) {
	shape := in.Trace.Header.Shape
	guesser := router.NewGuesser(shape, in.Rule)
	tally := newTally("lookahead", o.Ahead, shape)
	hidden, score := make([]float32, in.Width), make([]float32, shape.Experts)
	for i := range o.MaxTokens {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		for from := range shape.Layers {
			in.state(i, from, hidden)
			for d := 1; d <= o.Ahead && from+d < shape.Layers; d++ {
				clear(score)
				ids, p := guesser.Guess(in.Routers[from+d], hidden)
				for at, e := range ids {
					score[e] = p[at]
				}
				used, _ := in.Trace.Row(i, from+d)
				tally.add(d, from+d, score, used)
			}
		}
	}
	rows := tally.rows()
	for i := range rows {
		rows[i].LogLoss, rows[i].CalibrationError = nil, nil
	}
	return rows, nil
}

// learned measures a predictor, with hints of the look-ahead or without.
func learned(ctx context.Context, in *Input, p router.Predictor, ids, look bool, o Options) ([]Row, error) {
	shape := in.Trace.Header.Shape
	name := p.Name()
	if !ids {
		name += ", no ids"
	}
	if look {
		name += " + lookahead"
		p = router.NewHinted(p, shape)
	}
	t := in.Trace
	if !ids {
		blind := *t
		blind.Tokens = slices.Repeat([]int32{-1}, len(t.Tokens))
		t = &blind
	}
	r := replay{in: in, look: look, ahead: o.Ahead, tally: newTally(name, o.Ahead, shape), guesser: router.NewGuesser(shape, in.Rule),
		hidden: make([]float32, in.Width), score: make([][]float32, o.Ahead+1)}
	for d := range r.score {
		r.score[d] = make([]float32, shape.Experts)
	}
	histories := router.NewHistories(p, t, o.MaxTokens)
	for i := range o.MaxTokens {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		h := histories.Begin(i)
		for layer := range shape.Layers {
			r.layer(h, histories.Choice(i, layer), i, layer)
		}
	}
	return r.tally.rows(), nil
}

// replay is one predictor's run.
type replay struct {
	in      *Input
	look    bool
	ahead   int
	tally   *tally
	guesser *router.Guesser
	hidden  []float32
	score   [][]float32 // by distance
}

// layer tells what a layer's router saw and chose, and forecasts from there.
func (r *replay) layer(h router.History, choices []router.Choice, token, layer int) {
	layers := r.in.Trace.Header.Shape.Layers
	h.Observe(layer, choices)
	if r.look {
		r.in.state(token, layer, r.hidden)
		for d := 1; d <= r.ahead && layer+d < layers; d++ {
			ids, p := r.guesser.Guess(r.in.Routers[layer+d], r.hidden)
			h.(router.Hinter).Hint(layer, layer+d, ids, p)
		}
	}
	for d := 1; d <= r.ahead && layer+d < layers; d++ {
		h.Score(layer+d, r.score[d])
		used, _ := r.in.Trace.Row(token, layer+d)
		r.tally.add(d, layer+d, r.score[d], used)
	}
}
