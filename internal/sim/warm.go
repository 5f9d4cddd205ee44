package sim

import (
	"context"
	"fmt"
	"math"

	"outrider/internal/passes"
	"outrider/router"
	"outrider/trace"
)

// cut divides a trace into what is left out at its beginning and what is replayed.
// A sequence that lies in both goes on as a new one. Both share the trace's memory.
func (o Options) cut(t *trace.Trace) (head, rest *trace.Trace, err error) {
	n := int(math.Round(max(o.Warm, o.Skip) * float64(t.Len())))
	head, rest = part(t, 0, n), part(t, n, t.Len())
	if rest.Len() == 0 {
		return nil, nil, fmt.Errorf("sim: %w: the trace of %q has no tokens, or none after those left out", ErrOption, t.Header.Model)
	}
	return head, rest, nil
}

// part is tokens from to to of a trace, as a view that nothing may be appended to.
func part(t *trace.Trace, from, to int) *trace.Trace {
	ids := t.Header.Shape.Layers * t.Header.Shape.TopK
	p := &trace.Trace{
		Header: t.Header,
		Seqs:   t.Seqs[from:to], Pos: t.Pos[from:to], Phases: t.Phases[from:to], Tokens: t.Tokens[from:to],
		Experts: t.Experts[from*ids : to*ids],
	}
	if t.Weights != nil {
		p.Weights = t.Weights[from*ids : to*ids]
	}
	return p
}

// newPredictor makes the run's predictor, nil if it forecasts nothing. It has learned
// from head, unless it knows the future anyway.
func (e *engine) newPredictor(ctx context.Context, head *trace.Trace) (router.Predictor, error) {
	plain := e.policy
	plain.Next = false
	p, err := plain.NewPredictor(e.shape, e.trace)
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	if p == nil {
		return nil, nil
	}
	if e.opts.Predictor != nil {
		p = e.opts.Predictor
	}
	if e.opts.Warm > 0 && !plain.Bound() {
		if err := learn(ctx, p, head, e.opts); err != nil {
			return nil, err
		}
	}
	if e.policy.Next {
		if p, err = router.NewRevealed(p, e.trace); err != nil {
			return nil, fmt.Errorf("sim: %w", err)
		}
	}
	return p, nil
}

// learn tells a predictor of the passes of a trace. Nothing is kept, read or counted.
func learn(ctx context.Context, p router.Predictor, t *trace.Trace, o Options) error {
	schedule := passes.New(t, passes.Options{Batch: o.Batch, Chunk: o.Chunk})
	union := passes.NewUnion(schedule.Shape())
	open := map[int64]router.History{}
	for n := 0; ; n++ {
		parts := schedule.Next()
		if parts == nil {
			return nil
		}
		if n%64 == 0 && ctx.Err() != nil {
			return fmt.Errorf("sim: stopped while it learned: %w", context.Cause(ctx))
		}
		for _, part := range parts {
			if open[part.Seq] == nil {
				open[part.Seq] = p.NewHistory()
			}
			phase, tokens := schedule.Known(part)
			open[part.Seq].Begin(phase, tokens)
		}
		for layer := range schedule.Shape().Layers {
			union.Gather(schedule, parts, layer)
			for i, part := range parts {
				open[part.Seq].Observe(layer, union.Choices[i])
			}
		}
		for _, part := range parts {
			if part.Last {
				delete(open, part.Seq)
			}
		}
	}
}
