// Package costs says what tokens took of a runtime, from its counters before and after.
package costs

import (
	"time"

	"outrider/runtime"
)

// Cost is what some tokens took.
type Cost struct {
	Tokens                          int64
	Took, Stall                     time.Duration
	Lookups, Hits                   int64
	DemandReads, SpeculativeReads   int64
	Bytes                           int64
	Useful, Late, Wasted, Displaced int64
}

// Figures is a cost as people and programs want it.
type Figures struct {
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

// Between is what happened between two snapshots of a runtime's counters.
func Between(before, after runtime.Stats, took time.Duration) Cost {
	b, r := before.Reads, after.Reads
	return Cost{
		Tokens: after.Tokens - before.Tokens, Took: took, Stall: after.Stall - before.Stall,
		Lookups: after.Lookups - before.Lookups, Hits: after.Hits - before.Hits,
		DemandReads: r.DemandReads - b.DemandReads, SpeculativeReads: r.Issued - b.Issued,
		Bytes:  r.DemandBytes + r.SpeculativeBytes - b.DemandBytes - b.SpeculativeBytes,
		Useful: r.Useful - b.Useful, Late: r.Late - b.Late, Wasted: r.Wasted - b.Wasted, Displaced: r.Displaced - b.Displaced,
	}
}

// Add sums up.
func (c *Cost) Add(o Cost) {
	c.Tokens += o.Tokens
	c.Took += o.Took
	c.Stall += o.Stall
	c.Lookups += o.Lookups
	c.Hits += o.Hits
	c.DemandReads += o.DemandReads
	c.SpeculativeReads += o.SpeculativeReads
	c.Bytes += o.Bytes
	c.Useful += o.Useful
	c.Late += o.Late
	c.Wasted += o.Wasted
	c.Displaced += o.Displaced
}

// Figures divides by the tokens; of none all are 0.
func (c Cost) Figures() Figures {
	each := func(n float64) float64 {
		if c.Tokens == 0 {
			return 0
		}
		return n / float64(c.Tokens)
	}
	f := Figures{
		Tokens: c.Tokens, StallPerToken: each(float64(c.Stall) / 1e3), BytesPerToken: each(float64(c.Bytes)),
		DemandReadsPerToken: each(float64(c.DemandReads)), SpeculativeReadsPerToken: each(float64(c.SpeculativeReads)),
		Useful: c.Useful, Late: c.Late, Wasted: c.Wasted, Displaced: c.Displaced,
	}
	if c.Took > 0 {
		f.TokensPerSecond = float64(c.Tokens) / c.Took.Seconds()
	}
	if c.Lookups > 0 {
		f.Hits = float64(c.Hits) / float64(c.Lookups)
	}
	return f
}
