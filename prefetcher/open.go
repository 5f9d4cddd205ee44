package prefetcher

import (
	"fmt"

	"outrider/experts"
)

// open finds the expert's place in the source and a slot for it, and starts to
// read.
func (p *Prefetcher) open(f *flight, class Class) {
	if err := p.locate(f); err != nil {
		p.endOpening(class)
		p.fail(f, err)
		return
	}
	seen := p.epoch.Load()
	want, own := experts.Demand, 0.0
	if class != Demand {
		want = experts.Speculative
		own = p.opt.Margin * p.expect(f)
	}
	fill, err := p.cache.Begin(f.id, want, own)
	if err == nil {
		f.fill, f.held = fill, true
		if int64(len(fill.Bytes())) >= f.place.Bytes {
			p.startReading(f, class) // which ends the opening, at the moment that the blocks wait
			return
		}
	}
	p.endOpening(class)
	switch err {
	case nil:
		p.fail(f, checkPlacement(&f.place, int64(len(fill.Bytes())), p.opt.Source.Lanes()))
	case experts.ErrResident:
		p.alreadyThere(f)
	case experts.ErrNoRoom, experts.ErrFilling, experts.ErrNotWorth:
		p.refused(f, class, seen)
	default:
		p.fail(f, err)
	}
}

// expect is the forecast's own expectation of the next use, at this moment.
func (p *Prefetcher) expect(f *flight) float64 {
	p.mu.Lock()
	step := p.mu.step
	p.mu.Unlock()
	return Candidate{P: f.item.P, NeededBy: f.item.NeededBy}.Expect(step, p.shape.Layers)
}

func (p *Prefetcher) endOpening(class Class) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endOpeningLocked(class)
}

func (p *Prefetcher) endOpeningLocked(class Class) {
	if class == Demand {
		p.mu.demandOpening--
	} else {
		p.mu.opening--
	}
}

// locate asks the source where the expert lies, and checks the answer.
func (p *Prefetcher) locate(f *flight) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("prefetcher: locate %v: %w: %v", f.id, ErrPanic, r)
		}
	}()
	if err := p.opt.Source.Locate(f.id, &f.place); err != nil {
		return fmt.Errorf("prefetcher: locate %v: %w", f.id, err)
	}
	if err := checkPlacement(&f.place, p.slotBytes[f.id.Layer], p.opt.Source.Lanes()); err != nil {
		return fmt.Errorf("prefetcher: locate %v: %w", f.id, err)
	}
	return nil
}
