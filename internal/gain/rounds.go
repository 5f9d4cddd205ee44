package gain

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"outrider/internal/rawread"
	"outrider/layout"
)

const (
	roundParts = 20  // of the time for reading: a round each, without its raw reads
	rawTimes   = 4   // as many times the depth a raw slice reads, so that its beginning and end count little
	readShare  = 0.8 // of the whole time, when the last round begins
)

// meter measures the arms against each other.
type meter struct {
	o       Options
	began   time.Time
	sample  *sample
	inPlace *layout.InPlace
	store   *layout.Store
	raw     *blocks
	buffers *rawread.Buffers
	random  *rand.Rand
	turn    int // batches so far
}

// round is what some batches took, and the raw reader's rate beside them.
type round struct {
	batches        [][]layout.ExpertID
	bytes          int64 // of tensors, in each of the two arms
	inPlace, store time.Duration
	raw            float64 // bytes a second
}

// rounds reads until the time is up. The first round only warms up.
func (m *meter) rounds(ctx context.Context) (out []round, err error) {
	until := m.began.Add(time.Duration(readShare * float64(m.o.Duration)))
	slice := time.Until(until) / roundParts
	for i := 0; len(out) == 0 || time.Now().Before(until); i++ {
		r, err := m.round(ctx, slice)
		if err != nil {
			return nil, err
		}
		if i > 0 || !time.Now().Before(until) {
			out = append(out, r)
		}
		m.progress()
	}
	return out, nil
}

// round reads batches in both arms for a slice of time, then raw.
func (m *meter) round(ctx context.Context, slice time.Duration) (r round, err error) {
	for began := time.Now(); len(r.batches) == 0 || time.Since(began) < slice; m.turn++ {
		ids := m.sample.batches[m.turn%len(m.sample.batches)]
		first, second := layout.Source(m.inPlace), layout.Source(m.store)
		times := []*time.Duration{&r.inPlace, &r.store}
		if m.turn%2 == 1 {
			first, second = second, first
			times[0], times[1] = times[1], times[0]
		}
		for i, source := range []layout.Source{first, second} {
			took, err := m.read(ctx, source, ids)
			if err != nil {
				return r, err
			}
			*times[i] += took
		}
		r.batches, r.bytes = append(r.batches, ids), r.bytes+m.sample.bytes(ids)
	}
	r.raw, err = m.readRaw(ctx, r.bytes/int64(len(r.batches)))
	return r, err
}

// read is one batch of one arm.
func (m *meter) read(ctx context.Context, source layout.Source, ids []layout.ExpertID) (time.Duration, error) {
	report, err := rawread.Run(ctx, rawread.Options{Source: source, Experts: ids, Buffers: m.buffers, Workers: m.o.Depth, Block: readBlock})
	if err != nil {
		return 0, fmt.Errorf("gain: %w", err)
	}
	return max(report.Duration, 1), nil // what takes no time cannot be compared
}

// readRaw reads large blocks, at least so many bytes.
func (m *meter) readRaw(ctx context.Context, bytes int64) (float64, error) {
	ids := m.raw.some(m.random, max(bytes, rawTimes*int64(m.o.RawDepth)*m.raw.size))
	report, err := rawread.Run(ctx, rawread.Options{Source: m.raw, Experts: ids, Buffers: m.buffers, Workers: m.o.RawDepth, Block: m.raw.size})
	if err != nil {
		return 0, fmt.Errorf("gain: %w", err)
	}
	return float64(report.Bytes) / max(report.Duration, 1).Seconds(), nil
}

// again reads a round's batches in place once more.
func (m *meter) again(ctx context.Context, r round) (took time.Duration, err error) {
	for _, ids := range r.batches {
		t, err := m.read(ctx, m.inPlace, ids)
		if err != nil {
			return 0, err
		}
		took += t
	}
	return took, nil
}

// open opens what is measured, and the buffers. The caller ends both with close.
func (m *meter) open() (err error) {
	if m.inPlace, err = layout.OpenInPlace(m.o.Reads, m.sample.cp, layout.Direct); err != nil {
		return fmt.Errorf("gain: %w", err)
	}
	m.raw = newBlocks(m.store, m.o.BlockBytes)
	if m.buffers, err = rawread.NewBuffers(max(m.o.Depth, m.o.RawDepth), max(readBlock, m.raw.size)); err != nil {
		return errors.Join(err, m.inPlace.Close())
	}
	return nil
}

func (m *meter) close() error { return errors.Join(m.inPlace.Close(), m.buffers.Close()) }

func (m *meter) progress() {
	if m.o.Progress != nil {
		total := m.o.Duration.Milliseconds()
		m.o.Progress(min(time.Since(m.began).Milliseconds(), total), total)
	}
}
