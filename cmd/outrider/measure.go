package main

import (
	"context"
	"time"

	"outrider/internal/refmodel"
	"outrider/runtime"
)

// cost is what some tokens took, from the runtime's counters before and after.
type cost struct {
	tokens                          int64
	took, stall                     time.Duration
	lookups, hits                   int64
	demandReads, speculativeReads   int64
	bytes                           int64
	useful, late, wasted, displaced int64
}

// costs is a cost as --json prints it.
type costs struct {
	Tokens                   int64   `json:"tokens"`
	TokensPerSecond          float64 `json:"tokens_per_s"`
	StallPerToken            float64 `json:"stall_us_per_token"`
	Hits                     float64 `json:"hits"` // share of experts that were in memory
	BytesPerToken            float64 `json:"bytes_per_token"`
	DemandReadsPerToken      float64 `json:"demand_reads_per_token"`
	SpeculativeReadsPerToken float64 `json:"speculative_reads_per_token"`
	Useful                   int64   `json:"useful"`
	Late                     int64   `json:"late"`
	Wasted                   int64   `json:"wasted"`
	Displaced                int64   `json:"displaced"`
}

func costBetween(before, after runtime.Stats, took time.Duration) cost {
	b, r := before.Reads, after.Reads
	return cost{
		tokens: after.Tokens - before.Tokens, took: took, stall: after.Stall - before.Stall,
		lookups: after.Lookups - before.Lookups, hits: after.Hits - before.Hits,
		demandReads: r.DemandReads - b.DemandReads, speculativeReads: r.Issued - b.Issued,
		bytes:  r.DemandBytes + r.SpeculativeBytes - b.DemandBytes - b.SpeculativeBytes,
		useful: r.Useful - b.Useful, late: r.Late - b.Late, wasted: r.Wasted - b.Wasted, displaced: r.Displaced - b.Displaced,
	}
}

func (c *cost) add(o cost) {
	c.tokens += o.tokens
	c.took += o.took
	c.stall += o.stall
	c.lookups += o.lookups
	c.hits += o.hits
	c.demandReads += o.demandReads
	c.speculativeReads += o.speculativeReads
	c.bytes += o.bytes
	c.useful += o.useful
	c.late += o.late
	c.wasted += o.wasted
	c.displaced += o.displaced
}

func (c cost) figures() costs {
	each := func(n float64) float64 {
		if c.tokens == 0 {
			return 0
		}
		return n / float64(c.tokens)
	}
	f := costs{
		Tokens: c.tokens, StallPerToken: each(float64(c.stall) / 1e3), BytesPerToken: each(float64(c.bytes)),
		DemandReadsPerToken: each(float64(c.demandReads)), SpeculativeReadsPerToken: each(float64(c.speculativeReads)),
		Useful: c.useful, Late: c.late, Wasted: c.wasted, Displaced: c.displaced,
	}
	if c.took > 0 {
		f.TokensPerSecond = float64(c.tokens) / c.took.Seconds()
	}
	if c.lookups > 0 {
		f.Hits = float64(c.hits) / float64(c.lookups)
	}
	return f
}

// generation is one text and what its two phases cost.
type generation struct {
	refmodel.Result
	prompt, decode cost
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
		out.prompt = costBetween(before, first, firstAt.Sub(began))
		out.decode = costBetween(first, rt.Stats(), a.now().Sub(firstAt))
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
