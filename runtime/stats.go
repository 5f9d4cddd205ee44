package runtime

import (
	"sync/atomic"
	"time"

	"outrider/experts"
	"outrider/prefetcher"
)

// Stats is a snapshot of a runtime's counters since Open.
type Stats struct {
	// Tokens is how many tokens entered the first layer.
	Tokens int64
	// Lookups counts the distinct experts of all uses; Hits those that were in
	// memory when their use began.
	Lookups, Hits int64
	// Uses counts layers executed, Complete those that found all their experts
	// in memory.
	Uses, Complete int64
	// Stall is the exposed stall: the time that Ready and Wait waited for weights.
	Stall time.Duration
	// LostObservations counts router choices that the forecaster was too busy
	// to learn from. They cost forecast quality, never correctness.
	LostObservations int64
	// Hints counts what runners told of layers to come.
	Hints HintStats

	// Budget is the limit for expert memory now, BudgetLimit the one that was
	// configured, by Options.BudgetBytes or SetBudget. Memory.Budget is above
	// Budget only while uses hold more than a lowered one.
	Budget, BudgetLimit int64
	// Pressure says why they differ.
	Pressure PressureStats

	Memory experts.Stats
	Reads  prefetcher.Stats
	Lanes  []LaneStats
}

// LaneStats says how one lane is read.
type LaneStats struct {
	Path     string
	Engine   string // how it is read: layout.Engine
	Direct   bool   // around the page cache, proven at open
	Fallback string // why not, where direct reads were asked for
}

// HitRate is the share of lookups that were hits, 0 without lookups.
func (s Stats) HitRate() float64 {
	if s.Lookups == 0 {
		return 0
	}
	return float64(s.Hits) / float64(s.Lookups)
}

// StallPerToken is the exposed stall of an average token, 0 without tokens.
func (s Stats) StallPerToken() time.Duration {
	if s.Tokens == 0 {
		return 0
	}
	return s.Stall / time.Duration(s.Tokens)
}

// counters are what the runtime itself counts.
type counters struct {
	tokens, lookups, hits, uses, complete, stall atomic.Int64
}

// Stats returns the counters now. They are read one by one, so that a snapshot
// taken while sessions run may be a use ahead in one and behind in another.
func (rt *Runtime) Stats() Stats {
	return Stats{
		Tokens:           rt.counters.tokens.Load(),
		Lookups:          rt.counters.lookups.Load(),
		Hits:             rt.counters.hits.Load(),
		Uses:             rt.counters.uses.Load(),
		Complete:         rt.counters.complete.Load(),
		Stall:            time.Duration(rt.counters.stall.Load()),
		LostObservations: rt.forecast.lost(),
		Hints:            rt.hintStats(),
		Budget:           rt.budget.now.Load(),
		BudgetLimit:      rt.budget.limit.Load(),
		Pressure:         rt.budget.pressure.stats(),
		Memory:           rt.cache.Stats(),
		Reads:            rt.reads.Stats(),
		Lanes:            rt.lanes(),
	}
}
