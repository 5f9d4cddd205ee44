package prefetcher

import (
	"fmt"
	"log/slog"

	"outrider/experts"
	"outrider/layout"
)

// Options of a Prefetcher. Source and Cache are needed.
type Options struct {
	Source layout.Source
	// Cache must be of the source's shape, with slots of at least the
	// source's SlotBytes, and call RoomFreed (experts.Options.Freed).
	Cache *experts.Cache

	Workers int   // blocks read at once; default 8, at most 1024
	Block   int64 // bytes of one ReadAt at most, a multiple of 4096; default 1 MiB
	// Patience is how many more urgent reads may pass a waiting class, and how
	// many demand blocks a speculative read under way; default DefaultPatience.
	Patience int
	// Margin is how many times later than the newcomer's a victim of a
	// speculative read must be expected; default DefaultMargin.
	Margin float64
	// Governor sets when speculation pays. Lanes is set from the source;
	// MaxWidth is by default one less than Workers (at least 1), so that a
	// demand finds a free worker.
	Governor GovernorOptions
	// NoSpeculation makes Speculate do nothing.
	NoSpeculation bool
	// Logger is told of failed reads that nobody waits for (debug) and of
	// changes of the governor's mode (info); nil is silent.
	Logger *slog.Logger
}

const (
	defaultWorkers = 8
	maxWorkers     = 1024
	defaultBlock   = 1 << 20
	pageBytes      = 4096
)

// withDefaults checks the options and fills in the defaults.
func (o Options) withDefaults() (Options, error) {
	if o.Source == nil || o.Cache == nil {
		return o, fmt.Errorf("prefetcher: options need a source and a cache")
	}
	if o.Workers == 0 {
		o.Workers = defaultWorkers
	}
	if o.Block == 0 {
		o.Block = defaultBlock
	}
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	if o.Margin == 0 {
		o.Margin = DefaultMargin
	}
	switch {
	case o.Workers < 1 || o.Workers > maxWorkers:
		return o, fmt.Errorf("prefetcher: %d workers, want 1 to %d", o.Workers, maxWorkers)
	case o.Block < pageBytes || o.Block%pageBytes != 0:
		return o, fmt.Errorf("prefetcher: blocks of %d bytes, want a multiple of %d", o.Block, pageBytes)
	case o.Patience < 1:
		return o, fmt.Errorf("prefetcher: patience %d, want 1 or more", o.Patience)
	case !(o.Margin >= 1):
		return o, fmt.Errorf("prefetcher: margin %v, want 1 or more", o.Margin)
	}
	for _, lane := range o.Source.Lanes() {
		// A block must keep the lane's alignment.
		if a := int64(max(lane.File.Direct().Offset, lane.File.Direct().Memory)); a > 1 && o.Block%a != 0 {
			o.Block = (o.Block + a - 1) / a * a
		}
	}
	o.Governor.Lanes = len(o.Source.Lanes())
	if o.Governor.MaxWidth == 0 {
		o.Governor.MaxWidth = max(o.Workers-1, 1)
	}
	return o, nil
}
