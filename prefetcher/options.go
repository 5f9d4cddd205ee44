package prefetcher

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"outrider/experts"
	"outrider/layout"
)

// Options of a Prefetcher. Source and Cache are needed.
type Options struct {
	Source layout.Source
	// Cache must be of the source's shape, with slots of at least the
	// source's SlotBytes, and call RoomFreed (experts.Options.Freed).
	Cache *experts.Cache

	Depth int // reads at once on each lane, each with a worker; default 8, at most 1024
	// Block is the size in bytes that reads are cut to so that a lane's workers
	// share them, a multiple of 4096; default 1 MiB. Speculative reads are cut to
	// less, so that a demand waits for little.
	Block int64
	// Request is the most that one request asks for: demanded blocks that lie side
	// by side go together where no worker is free to share them. Default Block if
	// that is given, else 4 MiB: large requests cost less of the processor.
	Request int64
	// Lanes, if not nil, has what is known of each lane of the source.
	Lanes []LaneOptions
	// SilentAfter is how long a lane may take for a read before it is given up: the
	// expert is read from its copy, or else its waiters get ErrNoAnswer; default
	// 30 s, as long as kernels wait for a drive.
	SilentAfter time.Duration
	// Patience is how many more urgent reads may pass a waiting class, and how
	// many demand blocks a speculative read under way; default DefaultPatience.
	Patience int
	// Margin is how many times later than the newcomer's a victim of a
	// speculative read must be expected; default DefaultMargin.
	Margin float64
	// Governor sets when speculation pays. Lanes is set from the source;
	// MaxWidth is by default one less than the largest depth (at least 1), so that
	// a demand finds a free worker.
	Governor GovernorOptions
	// NoSpeculation makes Speculate do nothing.
	NoSpeculation bool
	// Logger is told of failed reads that nobody waits for (debug) and of
	// changes of the governor's mode (info); nil is silent.
	Logger *slog.Logger
}

// LaneOptions is what is known of a lane before it is read, by measurement
// (layout/drive). The zero value: nothing.
type LaneOptions struct {
	Depth          int     // instead of Options.Depth
	BytesPerSecond float64 // until reads tell more
}

const (
	defaultDepth       = 8
	maxDepth           = 1024
	defaultBlock       = 1 << 20
	defaultRequest     = 4 << 20
	pageBytes          = 4096
	defaultSilentAfter = 30 * time.Second
)

// withDefaults checks the options and fills in the defaults.
func (o Options) withDefaults() (Options, error) {
	if o.Source == nil || o.Cache == nil {
		return o, fmt.Errorf("prefetcher: options need a source and a cache")
	}
	o.Request = cmp.Or(o.Request, o.Block, defaultRequest)
	o.Depth = cmp.Or(o.Depth, defaultDepth)
	o.Block = cmp.Or(o.Block, defaultBlock)
	o.SilentAfter = cmp.Or(o.SilentAfter, defaultSilentAfter)
	o.Patience = cmp.Or(o.Patience, DefaultPatience)
	o.Margin = cmp.Or(o.Margin, DefaultMargin)
	depth, err := o.check()
	if err != nil {
		return o, err
	}
	if a := o.alignment(); o.Block%a != 0 {
		o.Block = (o.Block + a - 1) / a * a
		o.Request = max(o.Request, o.Block)
	}
	o.Governor.Lanes = len(o.Source.Lanes())
	if o.Governor.MaxWidth == 0 {
		o.Governor.MaxWidth = max(depth-1, 1)
	}
	return o, nil
}

// check reports the first option that has no meaning, and the largest depth of a lane.
func (o Options) check() (depth int, err error) {
	switch {
	case o.Depth < 1 || o.Depth > maxDepth:
		return 0, fmt.Errorf("prefetcher: depth %d, want 1 to %d", o.Depth, maxDepth)
	case o.Block < pageBytes || o.Block%pageBytes != 0:
		return 0, fmt.Errorf("prefetcher: blocks of %d bytes, want a multiple of %d", o.Block, pageBytes)
	case o.SilentAfter < 0:
		return 0, fmt.Errorf("prefetcher: a lane is silent after %v, want more than 0", o.SilentAfter)
	case o.Lanes != nil && len(o.Lanes) != len(o.Source.Lanes()):
		return 0, fmt.Errorf("prefetcher: options for %d lanes, the source has %d", len(o.Lanes), len(o.Source.Lanes()))
	case o.Request < o.Block:
		return 0, fmt.Errorf("prefetcher: requests of %d bytes, want at least a block of %d", o.Request, o.Block)
	case o.Patience < 1:
		return 0, fmt.Errorf("prefetcher: patience %d, want 1 or more", o.Patience)
	case !(o.Margin >= 1):
		return 0, fmt.Errorf("prefetcher: margin %v, want 1 or more", o.Margin)
	}
	for i := range o.Source.Lanes() {
		d := o.laneOptions(i).Depth
		if d < 1 || d > maxDepth {
			return 0, fmt.Errorf("prefetcher: lane %d: depth %d, want 1 to %d, or 0 for that of all", i, d, maxDepth)
		}
		depth = max(depth, d)
	}
	return depth, nil
}

// alignment is what blocks must keep on every lane: a power of two, at least a page.
func (o Options) alignment() int64 {
	a := pageBytes
	for _, lane := range o.Source.Lanes() {
		for _, f := range []layout.File{lane.File, lane.Copies} {
			if f != nil {
				a = max(a, f.Direct().Offset, f.Direct().Memory)
			}
		}
	}
	return int64(a)
}

// laneOptions are those of a lane, with the depth filled in.
func (o Options) laneOptions(i int) LaneOptions {
	var l LaneOptions
	if o.Lanes != nil {
		l = o.Lanes[i]
	}
	if l.Depth == 0 {
		l.Depth = o.Depth
	}
	return l
}

// makeLanes makes the lanes, without their workers.
func (p *Prefetcher) makeLanes(o Options) {
	p.unit = o.alignment()
	for i, source := range o.Source.Lanes() {
		p.copies = p.copies || source.Copies != nil
		known := o.laneOptions(i)
		p.lanes = append(p.lanes, &lane{
			Lane: source, index: i, depth: known.Depth, gap: min(p.unit*maxGapUnits, maxGap),
			wake: sync.NewCond(&p.mu.Mutex), rate: newRate(known.BytesPerSecond),
		})
	}
}

// Neighbours are read together over a gap of that much: reading it costs less than a
// second request.
const (
	maxGapUnits = 4
	maxGap      = 64 << 10
)
