package main

import (
	"context"
	"time"

	"outrider/internal/costs"
	"outrider/internal/refmodel"
	"outrider/runtime"
)

// generation is one text and what its two phases cost.
type generation struct {
	refmodel.Result
	prompt, decode costs.Cost
}

// generate continues a prompt by n tokens and measures: the prompt's pass until
// the first token is known, then decoding.
func generate(ctx context.Context, a *app, g *refmodel.Generator, in request) (generation, error) {
	rt := in.runtime
	began, before := a.now(), rt.Stats()
	var first runtime.Stats
	var firstAt time.Time
	result, err := g.Generate(ctx, in.prompt, in.tokens, in.sampler, func(_ int32, text string) error {
		if firstAt.IsZero() {
			first, firstAt = rt.Stats(), a.now()
		}
		if in.onText == nil {
			return nil
		}
		return in.onText(text)
	})
	out := generation{Result: result}
	if !firstAt.IsZero() {
		out.prompt = costs.Between(before, first, firstAt.Sub(began))
		out.decode = costs.Between(first, rt.Stats(), a.now().Sub(firstAt))
	}
	return out, err
}

// request is what to generate.
type request struct {
	runtime *runtime.Runtime // that the generator runs on
	prompt  []int32
	tokens  int
	sampler refmodel.Sampler
	onText  func(string) error // nil: nobody reads along
}

// lanesRead says how a runtime's lanes are read: whether all are read around
// the page cache, and if not, why.
func lanesRead(stats runtime.Stats) (direct bool, reason string) {
	direct = true
	for _, lane := range stats.Lanes {
		if !lane.Direct {
			direct = false
			if reason == "" {
				reason = lane.Fallback
			}
		}
	}
	return direct, reason
}

func directText(direct bool) string {
	if direct {
		return "direct"
	}
	return "buffered"
}
