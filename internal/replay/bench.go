package replay

import (
	"context"
	"fmt"
	"time"

	"outrider/internal/mmaparm"
	"outrider/internal/pagecache"
	"outrider/internal/passes"
	"outrider/internal/runs"
	"outrider/layout"
	"outrider/trace"
)

// Mmap is the run of what users have without Outrider: the files mapped into
// memory, with the page cache held to the budget (package mmaparm).
const Mmap = "mmap"

// Cell is one arm: a run within a budget.
type Cell struct {
	Run         string // of package runs, or Mmap
	BudgetBytes int64
}

// Bench compares arms over the same passes of a trace on the same store. In each
// round every arm plays all passes from a cold start, in turn; at the end the first
// one is played once more, so that what changed meanwhile is seen.
type Bench struct {
	Trace  *trace.Trace
	Passes passes.Options
	// Open opens the store; each arm does, and closes it.
	Open func() (layout.Source, error)
	// Files are the store's lanes or the checkpoint's files, for the page cache.
	Files []string

	Layer     time.Duration // compute of a layer
	Attention float64       // 0 means 0.5
	Workers   int           // 0 means the prefetcher's default
	Block     int64         // bytes of one read at most; 0 means the prefetcher's default
	Rounds    int           // 1 or more

	// Exe and Args start a process that calls mmaparm.Serve, for Mmap.
	Exe  string
	Args []string

	// Progress is told how many of all layer executions were played.
	Progress func(done, total int64)

	total, done int64
}

// Result is what one arm did.
type Result struct {
	Cell
	Again  bool // the first arm, played once more at the end
	Rounds []Round
}

// Round is one playing of all passes from a cold start.
type Round struct {
	Tokens, Passes    int
	Took              time.Duration
	Stall             time.Duration
	Compute           time.Duration // that was imitated
	Lookups, Hits     int64         // of experts; none for Mmap
	Executions        int64         // of layers
	Complete          int64         // of those, with all experts in memory
	DemandReads       int64
	SpeculativeReads  int64
	Useful, Late      int64
	Wasted, Displaced int64
	RecallAtK         float64
	ReadBytes         int64   // -1 where not known
	RawBytesPerSecond float64 // of a raw reader over the extents that the arm read; 0 for Mmap
	RawExperts        int     // that it read
	MajorFaults       int64   // Mmap
	Limit             string  // Mmap: how its memory is bounded
	ReadAheadBytes    int64   // Mmap: how far the kernel reads around a fault; -1 where not known
	Failed            string  // why the arm could not play; its other figures mean nothing then
	WarmPages         int64   // of the files in the page cache at the start; -1 where not known
	Direct            bool    // read around the page cache
	Fallback          string  // why not
}

// StallOverCompute is the headline figure.
func (r Round) StallOverCompute() float64 {
	if r.Compute <= 0 {
		return 0
	}
	return float64(r.Stall) / float64(r.Compute)
}

// Run plays the cells, and returns a result for each and one more for the first
// again. On an error those that were played whole are lost.
func (b *Bench) Run(ctx context.Context, cells []Cell) ([]Result, error) {
	results := make([]Result, len(cells)+1)
	for i, c := range cells {
		results[i].Cell = c
	}
	last := &results[len(cells)]
	last.Cell, last.Again = cells[0], true
	perRound := int64(b.executions())
	b.total, b.done = perRound*int64(len(cells)*b.Rounds+1), 0
	for range b.Rounds {
		for i := range cells {
			if err := b.play(ctx, &results[i]); err != nil {
				return nil, err
			}
		}
	}
	return results, b.play(ctx, last)
}

func (b *Bench) executions() int {
	n := 0
	s := passes.New(b.Trace, b.Passes)
	for parts := s.Next(); parts != nil; parts = s.Next() {
		n += s.Shape().Layers
	}
	return n
}

// play adds a round to a result.
func (b *Bench) play(ctx context.Context, r *Result) error {
	warm := b.chill()
	var round Round
	var err error
	if r.Run == Mmap {
		round, err = b.playMmap(ctx, r.BudgetBytes)
	} else {
		round, err = b.playRun(ctx, r.Cell)
	}
	if err != nil {
		return fmt.Errorf("replay: arm %s: %w", r.Run, err)
	}
	round.WarmPages = warm
	r.Rounds = append(r.Rounds, round)
	return nil
}

// chill drops the files from the page cache and returns how many pages stayed, -1
// where the system does not tell.
func (b *Bench) chill() (warm int64) {
	for _, path := range b.Files {
		_ = pagecache.Drop(path) // what stayed is counted
		n, _, err := pagecache.Cached(path)
		if err != nil {
			return -1
		}
		warm += n
	}
	return warm
}

// played notes progress of one layer execution or several.
func (b *Bench) played(n int) {
	b.done += int64(n)
	if b.Progress != nil {
		b.Progress(b.done, b.total)
	}
}

// compute imitates compute as the mmap arm does.
func compute(ctx context.Context, d time.Duration) error {
	mmaparm.Compute(ctx, d)
	return context.Cause(ctx)
}

// Known reports whether a run's name is one that Bench can play.
func Known(name string) error {
	if name == Mmap {
		return nil
	}
	_, err := runs.Parse(name)
	return err
}
