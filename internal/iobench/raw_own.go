package iobench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"outrider/internal/rawread"
	"outrider/layout"
)

// own is a Raw of ours: rawread over a file system of the caller's.
type own struct {
	fsys    layout.FS
	name    string
	sources map[*Target]layout.Source
	buffers map[*Target]*rawread.Buffers
	seed    uint64
	closer  io.Closer
}

// NewOwn reads through a file system, whose engine has the given name: that of
// layout.Engine for its files. Its Close closes fsys by closer, unless that is nil.
func NewOwn(fsys layout.FS, engine string, closer io.Closer) Raw {
	return &own{
		fsys: fsys, name: "own loop, " + engine, closer: closer,
		sources: map[*Target]layout.Source{}, buffers: map[*Target]*rawread.Buffers{},
	}
}

// Name is "own loop, io_uring".
func (o *own) Name() string { return o.name }

// blocksListed is how many blocks a slice reads at most.
const blocksListed = 1 << 16

// Read reads records of the target in a random order.
func (o *own) Read(ctx context.Context, t *Target, depths []int, d time.Duration) ([]Slice, error) {
	src, err := o.open(t)
	if err != nil {
		return nil, err
	}
	ids := make([]layout.ExpertID, blocksListed)
	var out []Slice
	for _, depth := range depths {
		o.seed++
		random := rand.New(rand.NewPCG(o.seed, 0x4a7))
		for i := range ids {
			ids[i] = t.Shape.ID(random.IntN(t.Shape.Count()))
		}
		if err := o.reserve(t, depth); err != nil {
			return nil, err
		}
		var s Slice
		before := readUsage()
		report, err := rawread.Run(ctx, rawread.Options{
			Source: src, Experts: ids, Buffers: o.buffers[t], Workers: depth, Block: t.RecordBytes, MaxDuration: d})
		before.since(&s)
		if err != nil {
			return nil, fmt.Errorf("iobench: %w", err)
		}
		s.Ops, s.Bytes, s.Took = report.Reads, report.Bytes, report.Duration
		out = append(out, s)
	}
	return out, nil
}

func (o *own) open(t *Target) (layout.Source, error) {
	if src := o.sources[t]; src != nil {
		return src, nil
	}
	src, err := t.Open(o.fsys)
	if err != nil {
		return nil, fmt.Errorf("iobench: %w", err)
	}
	o.sources[t] = src
	return src, nil
}

// reserve sees that there are buffers for so many reads at once. They stay for later
// slices, so that none pays for making them.
func (o *own) reserve(t *Target, depth int) error {
	if b := o.buffers[t]; b != nil {
		if b.Len() >= depth {
			return nil
		}
		delete(o.buffers, t)
		if err := b.Close(); err != nil {
			return fmt.Errorf("iobench: %w", err)
		}
	}
	b, err := rawread.NewBuffers(depth, t.RecordBytes)
	if err != nil {
		return fmt.Errorf("iobench: %w", err)
	}
	o.buffers[t] = b
	return nil
}

// Close closes the sources and frees the buffers.
func (o *own) Close() error {
	var errs []error
	for _, src := range o.sources {
		errs = append(errs, src.Close())
	}
	for _, b := range o.buffers {
		errs = append(errs, b.Close())
	}
	if o.closer != nil {
		errs = append(errs, o.closer.Close())
	}
	clear(o.sources)
	clear(o.buffers)
	return errors.Join(errs...)
}
