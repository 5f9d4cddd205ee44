package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"outrider/internal/rawread"
	"outrider/layout"
	"outrider/layout/checkpoint"
)

// rawDepths are how many reads are under way at once; the best counts.
var rawDepths = []int{2, 4, 8, 16}

// mostBlock is the largest block that rawread takes.
const mostBlock = 64 << 20

// rawReader reads the model's files as fast as the drive allows: direct reads of an
// expert's size at random places.
type rawReader struct {
	system  *layout.System
	source  *blocks
	buffers *rawread.Buffers
	random  *rand.Rand
	each    time.Duration // of one depth
}

// rawRate is what came of one slice.
type rawRate struct {
	BytesPerSecond float64 `json:"bytes_per_s"`
	Depth          int     `json:"depth"`
	Direct         bool    `json:"direct"`
}

// openRaw opens the store, or the model if there is none.
func openRaw(model, store string, each time.Duration) (r *rawReader, err error) {
	r = &rawReader{random: rand.New(rand.NewPCG(1, 0x6c6c)), each: each}
	defer func() {
		if err != nil {
			r, err = nil, fmt.Errorf("raw reader: %w", errors.Join(err, r.Close()))
		}
	}()
	if r.system, err = layout.OpenSystem(layout.SystemOptions{}); err != nil {
		return r, err
	}
	path := model
	if store != "" {
		path = store
	}
	m, err := checkpoint.Open(r.system, path, layout.Direct)
	if err != nil {
		return r, err
	}
	if r.source, err = newBlocks(m.Source); err != nil {
		return r, errors.Join(err, m.Source.Close())
	}
	r.buffers, err = rawread.NewBuffers(rawDepths[len(rawDepths)-1], r.source.block)
	return r, err
}

// measure is the best of all depths, which flatters the drive rather than us.
func (r *rawReader) measure(ctx context.Context) (best rawRate, err error) {
	const listed = 1 << 15 // more than are read
	ids := make([]layout.ExpertID, listed)
	for _, depth := range rawDepths {
		for i := range ids {
			ids[i].Index = int32(r.random.IntN(r.source.count()))
		}
		got, err := rawread.Run(ctx, rawread.Options{
			Source: r.source, Experts: ids, Buffers: r.buffers, Workers: depth, Block: r.source.block, MaxDuration: r.each})
		if err != nil {
			return best, err
		}
		if rate := got.BytesPerSecond(); rate > best.BytesPerSecond {
			best = rawRate{BytesPerSecond: rate, Depth: depth, Direct: got.Direct}
		}
	}
	return best, nil
}

// Close closes the files, of none at all too.
func (r *rawReader) Close() error {
	if r == nil {
		return nil
	}
	var errs []error
	if r.buffers != nil {
		errs = append(errs, r.buffers.Close())
	}
	if r.source != nil {
		errs = append(errs, r.source.Close())
	}
	if r.system != nil {
		errs = append(errs, r.system.Close())
	}
	return errors.Join(errs...)
}

// blocks takes the files of a source for experts, one block each, whatever lies there.
type blocks struct {
	layout.Source
	block  int64
	counts []int // blocks of each lane
}

func newBlocks(src layout.Source) (*blocks, error) {
	b := &blocks{Source: src, block: 1}
	for l := range src.Shape().Layers {
		b.block = max(b.block, src.SlotBytes(l))
	}
	const page = 4096
	b.block = min((b.block+page-1)/page*page, mostBlock)
	for _, lane := range src.Lanes() {
		a := lane.File.Direct()
		if align := int64(max(a.Offset, a.Memory, 1)); b.block%align != 0 {
			return nil, fmt.Errorf("%s wants reads aligned to %d bytes, an expert has %d", lane.Path, align, b.block)
		}
		b.counts = append(b.counts, int(lane.File.Size()/b.block))
	}
	if b.count() == 0 {
		return nil, fmt.Errorf("the files are smaller than a block of %d bytes", b.block)
	}
	return b, nil
}

func (b *blocks) count() (n int) {
	for _, c := range b.counts {
		n += c
	}
	return n
}

// Shape is of one layer with all blocks.
func (b *blocks) Shape() layout.Shape { return layout.Shape{Layers: 1, Experts: b.count(), TopK: 1} }

// SlotBytes is a block.
func (b *blocks) SlotBytes(int) int64 { return b.block }

// Locate finds the block's lane.
func (b *blocks) Locate(id layout.ExpertID, p *layout.Placement) error {
	n := int(id.Index)
	for lane, count := range b.counts {
		if n < count {
			p.Bytes, p.Reads = b.block, append(p.Reads[:0], layout.Read{Lane: lane, Offset: int64(n) * b.block, Bytes: b.block, Need: b.block})
			return nil
		}
		n -= count
	}
	return fmt.Errorf("block %d of %d", id.Index, b.count())
}
