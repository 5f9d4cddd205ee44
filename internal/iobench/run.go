package iobench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"outrider/internal/pagecache"
)

// Run measures. When ctx ends it returns the context's cause; nothing of it outlives
// the call. The raw reader and the targets' files stay the caller's.
func Run(ctx context.Context, o Options) (result *Result, err error) {
	o, err = o.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &bench{opt: o}
	b.rounds, b.unit = o.rounds()
	b.total = int64(len(o.Targets)*tuneTries + b.rounds*(6*len(o.Targets)+4) + 1)
	if o.Progress != nil {
		o.Progress(0, b.total)
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if b.copies, err = countCopies(ctx, o.Targets[0], o.FS, o.Runtime); err != nil {
		return nil, err
	}
	b.chill()
	if err := b.tune(ctx); err != nil {
		return nil, err
	}
	if err := b.open(ctx); err != nil {
		return nil, err
	}
	for range b.rounds {
		if err := b.round(ctx); err != nil {
			return nil, err
		}
	}
	if b.again, err = b.readRaw(ctx, b.sizes[0], 2*rawUnits); err != nil {
		return nil, err
	}
	return b.result(), nil
}

// bench is a measurement under way.
type bench struct {
	opt    Options
	rounds int
	unit   time.Duration
	sizes  []*sizeArms
	mixed  mixedArms
	hits   []*hitsArm
	copies Copies
	again  Slice // the first raw arm at the end

	done, total int64
}

// sizeArms are the arms of one target.
type sizeArms struct {
	target *Target
	depth  int // of the raw reader

	raw, batch, sums, ahead, single *record
	plain, summed                   *runner
}

type mixedArms struct {
	size               *sizeArms
	aloneRec, mixedRec *record
	alone, mixed       *mixed
}

type hitsArm struct {
	rec *record
	arm *hits
}

// tick notes that one slice more is done.
func (b *bench) tick() {
	b.done++
	if b.opt.Progress != nil {
		b.opt.Progress(b.done, b.total)
	}
}

func (b *bench) units(n float64) time.Duration { return time.Duration(n * float64(b.unit)) }

// chill empties the page cache of the targets' files, so that what is in it at the end
// came from the run. Where that cannot be done, the residue is not known either.
func (b *bench) chill() {
	for _, t := range b.opt.Targets {
		for _, path := range t.Files {
			_ = pagecache.Drop(path)
		}
	}
}

// tune finds the depth at which the raw reader is fastest, for each target. Tries of
// one target lie apart, so that a slow spell of the drive hits one of them.
func (b *bench) tune(ctx context.Context) error {
	all := make([][]Slice, len(b.opt.Targets))
	for range tuneTries {
		for i, t := range b.opt.Targets {
			tries, err := b.opt.Raw.Read(ctx, t, tuneDepths, b.opt.tuneTime())
			if err != nil {
				return err
			}
			all[i] = append(all[i], tries...)
			b.tick()
		}
	}
	for i, t := range b.opt.Targets {
		b.sizes = append(b.sizes, newSizeArms(t, bestDepth(all[i])))
	}
	return nil
}

// bestDepth is the one whose median rate is largest, of slices that went through
// tuneDepths again and again.
func bestDepth(tries []Slice) int {
	best, depth := -1.0, 0
	for i, d := range tuneDepths {
		var rates []float64
		for at := i; at < len(tries); at += len(tuneDepths) {
			rates = append(rates, tries[at].BytesPerSecond())
		}
		if rate := median(rates); rate > best {
			best, depth = rate, d
		}
	}
	return depth
}

func newSizeArms(t *Target, depth int) *sizeArms {
	name, size := "batch-"+t.Batch.String(), sizeName(t.RecordBytes)
	return &sizeArms{
		target: t, depth: depth,
		raw: newRecord("raw-"+size, t), batch: newRecord(name, t), sums: newRecord(name+"+crc", t),
		ahead: newRecord(name+"+ahead", t), single: newRecord("single-"+size, t),
	}
}

// open opens the arms. They stay open through all rounds, so that their memory is
// made once, as in a model's run.
func (b *bench) open(ctx context.Context) (err error) {
	o := b.opt
	for _, s := range b.sizes {
		if s.plain, err = newRunner(s.target, o.FS, o.Runtime, withoutSums); err != nil {
			return err
		}
		if s.summed, err = newRunner(s.target, o.FS, o.Runtime, asItIs); err != nil {
			return err
		}
	}
	m := &b.mixed
	m.size = b.sizes[len(b.sizes)/2]
	m.aloneRec, m.mixedRec = newRecord("mixed-alone", m.size.target), newRecord("mixed-demand", m.size.target)
	if m.alone, err = newMixed(m.size.target, o.FS, o.Runtime, false); err != nil {
		return err
	}
	if m.mixed, err = newMixed(m.size.target, o.FS, o.Runtime, true); err != nil {
		return err
	}
	for _, forecast := range []bool{false, true} {
		h := &hitsArm{rec: newRecord(map[bool]string{false: "hits", true: "hits+forecast"}[forecast], nil)}
		if h.arm, err = newHits(ctx, hitsTarget(o.Targets), o.FS, o.Runtime, forecast); err != nil {
			return err
		}
		b.hits = append(b.hits, h)
	}
	return nil
}

// hitsTarget has the largest batch, and of these the smallest experts to hold.
func hitsTarget(targets []*Target) *Target {
	return slices.MinFunc(targets, func(a, b *Target) int {
		return cmp.Or(cmp.Compare(b.Experts, a.Experts), cmp.Compare(a.RecordBytes, b.RecordBytes))
	})
}

// close closes what is open.
func (b *bench) close() error {
	var errs []error
	for _, s := range b.sizes {
		for _, r := range []*runner{s.plain, s.summed} {
			if r != nil {
				errs = append(errs, r.close())
			}
		}
	}
	for _, m := range []*mixed{b.mixed.alone, b.mixed.mixed} {
		if m != nil {
			errs = append(errs, m.close())
		}
	}
	for _, h := range b.hits {
		errs = append(errs, h.arm.close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("iobench: %w", err)
	}
	return nil
}
