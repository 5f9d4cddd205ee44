package iobench

import (
	"context"
	"fmt"
	"time"
)

// round measures each arm once.
func (b *bench) round(ctx context.Context) error {
	for _, s := range b.sizes {
		if err := b.roundOf(ctx, s); err != nil {
			return fmt.Errorf("%v: %w", s.target.Batch, err)
		}
	}
	if err := b.roundMixed(ctx); err != nil {
		return fmt.Errorf("mixed: %w", err)
	}
	for _, h := range b.hits {
		s, err := h.arm.slice(ctx, h.rec, max(b.opt.HitUses/int64(b.rounds*len(b.hits)), 1))
		if err != nil {
			return fmt.Errorf("hits: %w", err)
		}
		h.rec.add(s, 0)
		b.tick()
	}
	return nil
}

// roundOf measures the arms of one target. The batch stands between two slices of
// the raw reader, whose rate together is what all of them are compared with.
func (b *bench) roundOf(ctx context.Context, s *sizeArms) error {
	raw, err := b.readRaw(ctx, s, rawUnits)
	if err != nil {
		return err
	}
	batch, err := s.plain.slice(ctx, s.batch, limits{time: b.units(batchUnits)}, s.plain.batch(s.target.Experts))
	if err != nil {
		return err
	}
	behind, err := b.readRaw(ctx, s, rawUnits)
	if err != nil {
		return err
	}
	b.tick()
	raw.add(behind)
	s.raw.add(raw, 0)
	rate := raw.BytesPerSecond()
	s.batch.add(batch, rate)
	for _, arm := range []struct {
		rec    *record
		runner *runner
		op     operation
	}{
		{s.sums, s.summed, s.summed.batch(s.target.Experts)},
		{s.ahead, s.plain, s.plain.pipeline},
		{s.single, s.plain, s.plain.batch(1)},
	} {
		slice, err := arm.runner.slice(ctx, arm.rec, limits{time: b.units(otherUnits)}, arm.op)
		if err != nil {
			return err
		}
		if err := arm.runner.drain(ctx); err != nil {
			return err
		}
		arm.rec.add(slice, rate)
		b.tick()
	}
	return nil
}

func (b *bench) readRaw(ctx context.Context, s *sizeArms, units float64) (Slice, error) {
	got, err := b.opt.Raw.Read(ctx, s.target, []int{s.depth}, b.units(units))
	if err != nil {
		return Slice{}, err
	}
	b.tick()
	return got[0], nil
}

// roundMixed compares the same demands with the forecast's reads beside them and
// without.
func (b *bench) roundMixed(ctx context.Context) error {
	m := &b.mixed
	raw := median(m.size.raw.rates)
	compute := time.Duration(0)
	if raw > 0 {
		compute = time.Duration(float64(m.size.target.RecordBytes) * float64(m.size.target.Experts) / raw * float64(time.Second))
	}
	for _, arm := range []struct {
		rec   *record
		mixed *mixed
	}{{m.aloneRec, m.alone}, {m.mixedRec, m.mixed}} {
		s, err := arm.mixed.slice(ctx, arm.rec, b.units(otherUnits), compute)
		if err != nil {
			return err
		}
		arm.rec.add(s, raw)
		b.tick()
	}
	return nil
}
