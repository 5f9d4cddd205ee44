package lookeval

import (
	"context"
	"fmt"

	"outrider/router"
	"outrider/trace"
)

// Options say what is measured. The zero value is three layers ahead over all
// tokens.
type Options struct {
	Ahead     int // most layers ahead; 0 means 3
	Warm      int // tokens replayed first, learned from but not counted
	MaxTokens int // tokens counted; 0 means all that are left
	// Progress is told now and then how many tokens were replayed, over all replays:
	// Replays of them, each of the tokens to warm up and those counted. nil: nobody.
	Progress func(tokens int)
}

// Replays is how often Run replays the tokens of a trace that tells their ids or
// does not.
func Replays(tokenIDs bool) int { return 1 + 2*len(withIDs(tokenIDs)) }

// withIDs are the ways in which the predictors are told ids.
func withIDs(tokenIDs bool) []bool {
	if tokenIDs {
		return []bool{false, true}
	}
	return []bool{false}
}

// Report is what was measured.
type Report struct {
	Tokens int   `json:"tokens"` // counted
	Rows   []Row `json:"rows"`
}

// Row is one source of forecasts at one distance.
type Row struct {
	// Source is "lookahead" (the guess alone, by the order of its scores), the
	// predictor's name, its name and "no ids" (without token ids, where the trace
	// tells them), or one of the latter two with "+ lookahead".
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
// fresh makes: they learn as they go, with and without the look-ahead and token
// ids. It fails where no tokens are left to count, when fresh fails, and with the
// context's error when that ends.
func Run(ctx context.Context, in *Input, fresh func() (router.Predictor, error), o Options) (*Report, error) {
	o, err := o.withDefaults(in.Trace)
	if err != nil {
		return nil, err
	}
	report := &Report{Tokens: o.MaxTokens}
	if report.Rows, err = raw(ctx, in, o); err != nil {
		return nil, err
	}
	replays := 1
	for _, ids := range withIDs(in.Trace.Header.Tokens) {
		for _, look := range []bool{false, true} {
			p, err := fresh()
			if err != nil {
				return nil, err
			}
			before := replays * (o.Warm + o.MaxTokens)
			rows, err := learned(ctx, in, p, ids, look, o.after(before))
			if err != nil {
				return nil, err
			}
			report.Rows = append(report.Rows, rows...)
			replays++
		}
	}
	return report, nil
}

// withDefaults settles how far ahead and over how many tokens.
func (o Options) withDefaults(t *trace.Trace) (Options, error) {
	left := t.Len() - o.Warm
	if o.Warm < 0 || left <= 0 {
		return o, fmt.Errorf("lookeval: %w: the trace has %d tokens and %d are to warm up: none is left to count", ErrInput, t.Len(), o.Warm)
	}
	if t.Header.Shape.Layers < 2 {
		return o, fmt.Errorf("lookeval: %w: a model of one MoE layer has nothing to look ahead at", ErrInput)
	}
	if o.MaxTokens <= 0 || o.MaxTokens > left {
		o.MaxTokens = left
	}
	if o.Ahead == 0 {
		o.Ahead = 3
	}
	o.Ahead = max(min(o.Ahead, t.Header.Shape.Layers-1), 0)
	return o, nil
}

// after are the options of a replay that begins after so many tokens of others.
func (o Options) after(before int) Options {
	if tell := o.Progress; tell != nil {
		o.Progress = func(tokens int) { tell(before + tokens) }
	}
	return o
}

// pause tells how far the replay is, and whether it must end.
func (o Options) pause(ctx context.Context, done int) error {
	if done%64 == 0 && o.Progress != nil {
		o.Progress(done)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// raw measures the guess alone.
func raw(ctx context.Context, in *Input, o Options) ([]Row, error) {
	shape := in.Trace.Header.Shape
	guesser := router.NewGuesser(shape, in.Rule)
	tally := newTally("lookahead", o.Ahead, shape)
	hidden, score := make([]float32, in.Width), make([]float32, shape.Experts)
	for i := o.Warm; i < o.Warm+o.MaxTokens; i++ {
		if err := o.pause(ctx, i); err != nil {
			return nil, err
		}
		for from := range shape.Layers {
			in.state(i, from, hidden)
			for d := 1; d <= o.Ahead && from+d < shape.Layers; d++ {
				in.guess(guesser, from+d, hidden, score)
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
	if !ids && in.Trace.Header.Tokens {
		name += ", no ids"
	}
	if look {
		name += " + lookahead"
		p = router.NewHinted(p, shape)
	}
	t := in.Trace
	if !ids {
		t = t.WithoutTokens()
	}
	r := replay{in: in, look: look, ahead: o.Ahead, tally: newTally(name, o.Ahead, shape), guesser: router.NewGuesser(shape, in.Rule),
		hidden: make([]float32, in.Width), score: make([][]float32, o.Ahead+1)}
	for d := range r.score {
		r.score[d] = make([]float32, shape.Experts)
	}
	histories := router.NewHistories(p, t, o.Warm+o.MaxTokens)
	for i := range o.Warm + o.MaxTokens {
		if err := o.pause(ctx, i); err != nil {
			return nil, err
		}
		r.counts = i >= o.Warm
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
	counts  bool // the token at hand
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
		if !r.counts {
			continue // scored all the same: that is how it is asked in use
		}
		used, _ := r.in.Trace.Row(token, layer+d)
		r.tally.add(d, layer+d, r.score[d], used)
	}
}
