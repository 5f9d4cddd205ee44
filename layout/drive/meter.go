package drive

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// A slice of time for a cell. It is cut so that the first round takes about a
// quarter of the time even if no row ends early.
const (
	plannedRounds = 4
	maxRounds     = 7
	minSlice      = 5 * time.Millisecond
	maxSlice      = 250 * time.Millisecond
)

// shuffleSeed orders the cells of a round and chooses what they read: the same
// in every call.
const shuffleSeed = 0x6f757472

// meter measures the table of one target.
type meter struct {
	call   *call
	target target
	step   int64 // blocks and offsets are multiples of it
	sizes  []int64
	memory *memory
	places []*place
}

func newMeter(c *call, t target) (*meter, error) {
	align := t.file.Direct()
	m := &meter{call: c, target: t, step: int64(max(blockStep, align.Memory, align.Offset))}
	if m.sizes = sizesFor(c.RecordBytes, t.bytes, m.step); len(m.sizes) == 0 {
		return nil, fmt.Errorf("drive: %s: %w: it has %d bytes, want at least %d: name a larger file", t.path, ErrSmall, t.bytes, blockSizes[0])
	}
	var err error
	if m.memory, err = newMemory(int(buffersFor(m.sizes))); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *meter) close() error { return m.memory.close() }

func (m *meter) cells() []Cell { return cellsOf(m.places) }

// run measures until the given moment, and what is under way by then.
func (m *meter) run(ctx context.Context, until time.Time) error {
	slots := len(m.sizes) * len(depths) * plannedRounds
	slice := min(max(time.Until(until)/time.Duration(slots), minSlice), m.call.slice)
	random := rand.New(rand.NewPCG(shuffleSeed, 0))
	if err := m.explore(ctx, random, slice, until); err != nil {
		return err
	}
	if len(m.places) == 0 {
		return fmt.Errorf("drive: %s: %w: no read began before the time was up: allow a longer duration", m.target.path, ErrTime)
	}
	order := slices.Clone(m.places)
	for range m.call.rounds - 1 {
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		var round time.Duration
		for _, p := range order {
			round += p.takes(slice)
		}
		if time.Now().Add(round).After(until) {
			return nil
		}
		for _, p := range order {
			if err := m.measure(ctx, p, slice); err != nil {
				return err
			}
		}
	}
	return nil
}

// explore is the first round: it finds out which cells there are. The first
// cells go by size, so that what a slow drive cannot bring in time is known
// before it is asked for.
func (m *meter) explore(ctx context.Context, random *rand.Rand, slice time.Duration, until time.Time) error {
	rows := make(map[int64][]float64, len(m.sizes))
	best := math.Inf(1) // until a read has told
	for _, depth := range depths {
		order := slices.Clone(m.sizes)
		if depth > 1 {
			random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		for _, size := range order {
			p := &place{block: size, depth: depth}
			if size*int64(depth) > maxBuffers || !grows(rows[size]) || time.Now().Add(p.expects(best, slice)).After(until) {
				continue
			}
			if err := m.measure(ctx, p, slice); err != nil {
				return err
			}
			rate := p.samples[0].rate
			if m.places = append(m.places, p); len(m.places) == 1 || rate > best {
				best = rate
			}
			rows[size] = append(rows[size], rate)
		}
	}
	return nil
}

// expects is how long a slice takes at a rate.
func (p *place) expects(rate float64, slice time.Duration) time.Duration {
	least := minReads * float64(p.block) * float64(p.depth) / rate
	return max(slice, time.Duration(least*float64(time.Second)))
}

// takes is how long a further slice will take.
func (p *place) takes(slice time.Duration) time.Duration {
	return p.expects(p.samples[0].rate, slice)
}

func (m *meter) measure(ctx context.Context, p *place, slice time.Duration) error {
	m.call.progress()
	r := reader{
		target: m.target, block: p.block, step: m.step, buffers: m.memory.take(int(p.block) * p.depth),
		seed: uint64(len(p.samples))<<32 | uint64(p.depth),
	}
	s, err := r.read(ctx, slice)
	if err == nil {
		p.samples = append(p.samples, s)
	}
	return err
}
