package main

import (
	"context"
	"fmt"
	"io"

	"outrider/internal/evaluate"
	"outrider/internal/lookeval"
	"outrider/internal/tables"
	"outrider/router"
	"outrider/trace"
)

// lookInput reads the recorded states and routers; nil if none were named.
func (c *evaluateCmd) lookInput(t *trace.Trace) (*lookeval.Input, error) {
	if c.Hidden == "" {
		return nil, nil
	}
	return lookeval.Open(t, c.Hidden, c.Gates)
}

// lookAhead measures what a look-ahead adds to a predictor, which is told token
// ids or not, whatever the entry says.
func lookAhead(ctx context.Context, a *app, in *lookeval.Input, e evaluate.Entry, o evaluate.CacheOptions) (*lookeval.Report, error) {
	if in == nil {
		return nil, nil
	}
	t := in.Trace
	bar := a.progress("looking ahead", "tokens")
	defer bar.finish()
	counted := t.Len() - o.Warm
	if o.MaxTokens > 0 {
		counted = min(counted, o.MaxTokens)
	}
	total := int64(lookeval.Replays(t.Header.Tokens) * (o.Warm + counted))
	fresh := func() (router.Predictor, error) { return e.New(t) }
	return lookeval.Run(ctx, in, fresh, lookeval.Options{
		Warm: o.Warm, MaxTokens: o.MaxTokens, Progress: func(tokens int) { bar.set(int64(tokens), total) },
	})
}

// writeLookahead writes a table with the distances one below the other, so that
// what is forecast for the same layers stands together.
func (e *evaluation) writeLookahead(w io.Writer) {
	if e.Lookahead == nil {
		return
	}
	fmt.Fprintln(w)
	g := tables.NewGrid("forecast", "layers ahead", "recall@k", "@1.5k", "@2k", "log loss", "cal. error")
	most := 0
	for _, r := range e.Lookahead.Rows {
		most = max(most, r.Ahead)
	}
	for ahead := 1; ahead <= most; ahead++ {
		for _, r := range e.Lookahead.Rows {
			if r.Ahead == ahead {
				g.Add(r.Source, fmt.Sprint(ahead), threeDigits(r.RecallAtK), threeDigits(r.RecallAt15K), threeDigits(r.RecallAt2K), fourDigits(r.LogLoss), fourDigits(r.CalibrationError))
			}
		}
	}
	g.Print(w)
}

func fourDigits(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.4f", *v)
}
