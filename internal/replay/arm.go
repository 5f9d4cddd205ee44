package replay

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"outrider/internal/mmaparm"
	"outrider/internal/passes"
	"outrider/internal/rawread"
	"outrider/internal/runs"
	"outrider/layout"
	"outrider/runtime"
)

// Limits of the raw reader, so that it never takes longer than the arms.
const (
	rawBytes    = 4 << 30
	rawDuration = 5 * time.Second
)

// passesAtOnce is how many passes are played between reports of progress.
const passesAtOnce = 4

// playRun plays a run through a runtime, and then its reads by a raw reader.
func (b *Bench) playRun(ctx context.Context, c Cell) (round Round, err error) {
	source, err := b.Open()
	if err != nil {
		return round, err
	}
	noted := &notedSource{Source: source}
	rt, schedule, recall, err := b.start(noted, c)
	if err != nil {
		return round, errors.Join(err, source.Close())
	}
	defer func() { err = errors.Join(err, rt.Close()) }() // closes the source
	p := New(rt, schedule, Options{Layer: b.Layer, Attention: b.Attention, Compute: compute})
	for more := true; more; {
		before := p.Passes
		if more, err = p.Play(ctx, passesAtOnce); err != nil {
			return round, errors.Join(err, p.Close())
		}
		b.played((p.Passes - before) * schedule.Shape().Layers)
	}
	if err := p.Close(); err != nil {
		return round, err
	}
	round = b.roundOf(p, rt.Stats())
	if recall != nil {
		round.RecallAtK = recall.AtK()
	}
	return round, b.readRaw(ctx, noted, &round)
}

// start makes the runtime of a run. The source is closed by it, or by the caller
// if there is an error.
func (b *Bench) start(source *notedSource, c Cell) (*runtime.Runtime, *passes.Schedule, *Recall, error) {
	r, err := runs.Parse(c.Run)
	if err != nil {
		return nil, nil, nil, err
	}
	schedule := passes.New(b.Trace, b.Passes)
	o, recall, err := RunOptions(r, b.Trace, schedule)
	if err != nil {
		return nil, nil, nil, err
	}
	// Arms that are compared must not follow the system's pressure.
	o.BudgetBytes, o.FixedBudget = c.BudgetBytes, true
	o.Depth, o.Block = b.Workers, b.Block
	rt, err := runtime.New(source, o)
	if err != nil {
		return nil, nil, nil, err
	}
	return rt, schedule, recall, nil
}

func (b *Bench) roundOf(p *Player, s runtime.Stats) Round {
	shape := b.Trace.Header.Shape
	round := Round{
		Tokens: p.Tokens, Passes: p.Passes, Took: p.Took, Stall: s.Stall,
		Compute: time.Duration(p.Passes*shape.Layers) * b.Layer,
		Lookups: s.Lookups, Hits: s.Hits, Executions: s.Uses, Complete: s.Complete,
		DemandReads: s.Reads.DemandReads, SpeculativeReads: s.Reads.Issued,
		Useful: s.Reads.Useful, Late: s.Reads.Late, Wasted: s.Reads.Wasted, Displaced: s.Reads.Displaced,
		ReadBytes: s.Reads.DemandBytes + s.Reads.SpeculativeBytes, Direct: true,
	}
	for _, lane := range s.Lanes {
		if !lane.Direct {
			round.Direct, round.Fallback = false, lane.Fallback
		}
	}
	return round
}

// readRaw reads the extents that the arm read, in the same order, with nothing in
// between.
func (b *Bench) readRaw(ctx context.Context, s *notedSource, round *Round) error {
	if len(s.read) == 0 {
		return nil
	}
	report, err := rawread.Run(ctx, rawread.Options{
		Source: s.Source, Experts: s.read, Workers: b.Workers, MaxBytes: rawBytes, MaxDuration: rawDuration,
	})
	if err != nil {
		return err
	}
	round.RawBytesPerSecond, round.RawExperts = report.BytesPerSecond(), report.Experts
	return nil
}

// playMmap plays the passes through a mapping of the files, in a process whose
// page cache is held to the budget.
func (b *Bench) playMmap(ctx context.Context, budget int64) (round Round, err error) {
	source, err := b.Open()
	if err != nil {
		return round, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	arm, err := mmaparm.Start(ctx, b.Exe, b.Args, mmaparm.Options{Source: source, BudgetBytes: budget})
	if err != nil {
		return round, err
	}
	defer func() { err = errors.Join(err, arm.Close()) }()
	total, err := b.touch(ctx, arm, &round)
	if err != nil {
		return round, err
	}
	layers := b.Trace.Header.Shape.Layers
	round.Stall, round.Took = total.Stall, total.Took
	round.Compute = time.Duration(round.Passes*layers) * b.Layer
	round.Executions, round.MajorFaults, round.ReadBytes = int64(total.Uses), total.MajorFaults, total.ReadBytes
	round.Limit, round.ReadAheadBytes = arm.Limit().String(), arm.Conditions().ReadAheadBytes
	return round, nil
}

// touch has the mmap arm use what the passes use, pass by pass.
func (b *Bench) touch(ctx context.Context, arm *mmaparm.Arm, round *Round) (total mmaparm.Result, err error) {
	schedule := passes.New(b.Trace, b.Passes)
	shape := schedule.Shape()
	attention := b.Attention
	if attention == 0 {
		attention = 0.5
	}
	before := time.Duration(float64(b.Layer) * attention)
	union := passes.NewUnion(shape)
	for parts := schedule.Next(); parts != nil; parts = schedule.Next() {
		uses := make([]mmaparm.Use, shape.Layers)
		for l := range uses {
			union.Gather(schedule, parts, l)
			uses[l] = mmaparm.Use{Layer: l, Experts: slices.Clone(union.Experts), Before: before, After: b.Layer - before}
		}
		result, err := arm.Play(ctx, uses)
		if errors.Is(err, mmaparm.ErrOutOfMemory) {
			round.Failed = err.Error() // a finding, not a reason to end the others
			b.played(b.executions() - round.Passes*shape.Layers)
			return total, nil
		}
		if err != nil {
			return total, err
		}
		total.Add(result)
		for _, part := range parts {
			round.Tokens += len(part.Tokens)
		}
		round.Passes++
		b.played(shape.Layers)
	}
	return total, nil
}

// notedSource notes which experts are read, in order: the runtime locates each
// once it begins to read it.
type notedSource struct {
	layout.Source
	mu   sync.Mutex
	read []layout.ExpertID
}

// Locate is the source's.
func (s *notedSource) Locate(id layout.ExpertID, p *layout.Placement) error {
	s.mu.Lock()
	s.read = append(s.read, id)
	s.mu.Unlock()
	return s.Source.Locate(id, p)
}
