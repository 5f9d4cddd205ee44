package runtime

import (
	"context"
	"log/slog"

	"outrider/layout"
	"outrider/prefetcher"
)

// logConfiguration tells what is really in effect, so that no option can be
// switched off without a word.
func (rt *Runtime) logConfiguration(o Options, reads prefetcher.Options) {
	predictor := "none"
	if rt.forecast != nil {
		predictor = rt.forecast.name
	}
	rt.log.Info("runtime open",
		"model", rt.model, "layers", rt.shape.Layers, "experts", rt.shape.Experts, "top_k", rt.shape.TopK,
		"budget_bytes", rt.budget.now.Load(), "budget_follows_pressure", rt.budget.pressure != nil,
		"placement", o.Placement.text(), "locked", o.Lock, "poison", o.Poison,
		"forecast", predictor, "keep", o.keepText(), "speculation", rt.forecast != nil && !o.NoSpeculation,
		"horizon", orWord(int64(o.Horizon), "auto"), "lookahead_layers", max(o.LookaheadLayers, 1),
		"depth", orWord(int64(reads.Depth), "default"), "block_bytes", orWord(reads.Block, "default"))
	if o.Drive != nil && o.Drive.Warning != "" {
		rt.log.Warn("the drive's profile may not be that of the drive", "profile", o.Drive.Path, "warning", o.Drive.Warning)
	}
	for _, lane := range rt.lanes() {
		level := slog.LevelInfo
		if lane.Fallback != "" || (o.Engine == layout.RingEngine && lane.Engine != layout.EngineRing) {
			level = slog.LevelWarn
		}
		rt.log.Log(context.Background(), level, "lane open",
			"path", lane.Path, "engine", lane.Engine, "direct", lane.Direct, "fallback", lane.Fallback)
	}
}

// orWord is a number that was set, or a word for one that was not.
func orWord(n int64, word string) any {
	if n == 0 {
		return word
	}
	return n
}

// logEnd tells what a run came to: a process that is killed for its memory is told
// apart from one that ended by the line that is missing.
func (rt *Runtime) logEnd() {
	s := rt.Stats()
	rt.log.Info("runtime closed",
		"budget_bytes", s.Budget, "budget_limit_bytes", s.BudgetLimit, "peak_bytes", s.Memory.Peak,
		"budget_shrinks", s.Pressure.Shrinks, "budget_grows", s.Pressure.Grows,
		"tokens", s.Tokens, "lookups", s.Lookups, "hits", s.Hits, "stall", s.Stall,
		"demand_reads", s.Reads.DemandReads, "speculative_reads", s.Reads.Issued, "failed_reads", s.Reads.Failed)
}
