package train

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"outrider/layout"
	"outrider/router"
	"outrider/router/learned"
	"outrider/trace"
)

// Train fits a network to traces of one model, each token as a pass of its own. It
// is for one goroutine, ends with the context's cause when that ends, and leaves the
// traces as they are. It fails with ErrOption, ErrTooLittle, or router.ErrShape where
// traces differ in shape or are too large for the online predictor.
func Train(ctx context.Context, traces []*trace.Trace, o Options) (m *learned.Model, r Report, err error) {
	if err := o.Validate(); err != nil {
		return nil, Report{}, err
	}
	o = o.withDefaults()
	random := rand.New(rand.NewPCG(o.Seed, seedStream))
	s, err := newSplit(traces, o.HoldOut, random)
	if err != nil {
		return nil, Report{}, err
	}
	header := traces[0].Header
	f := &fit{
		name: header.Model, dims: learned.Dims{Shape: header.Shape, Hidden: o.Hidden, Embedding: o.Embedding},
		options: o, random: random, report: &Report{Model: header.Model, Split: "sequence", Hidden: o.Hidden, Embedding: o.Embedding},
	}
	if err := f.dims.Validate(); err != nil {
		return nil, Report{}, fmt.Errorf("train: %w: %w", router.ErrShape, err)
	}
	if f.train, f.held, err = collect(ctx, s, header.Shape, o, random); err != nil {
		return nil, Report{}, err
	}
	f.describe(s)
	f.spread = f.train.spread()
	if f.network, err = newNetwork(f.dims, o.Batch); err != nil {
		return nil, Report{}, err
	}
	defer func() { err = errors.Join(err, f.network.close()) }()
	if m, err = f.run(ctx); err != nil {
		return nil, Report{}, err
	}
	return m, *f.report, nil
}

// seedStream tells this use of a seed from others.
const seedStream = 0x1ea24ed

func (f *fit) describe(s *split) {
	r := f.report
	if s.byTime {
		r.Split = "time"
	}
	r.TrainSequences, r.TrainTokens, r.TrainExamples = s.trainSequences, s.trainTokens, f.train.len()
	r.HeldOutSequences, r.HeldOutTokens, r.HeldOutExamples = s.heldSequences, s.heldTokens, f.held.len()
	r.Parameters = f.dims.Numbers()
}

// collect replays the training tokens twice, in lives and as a whole, then the
// held-out ones over the online predictor of the latter, and once more over a new
// one.
func collect(ctx context.Context, s *split, shape layout.Shape, o Options, random *rand.Rand) (*examples, heldOut, error) {
	done, total := int64(0), int64(2*s.trainTokens+2*s.heldTokens)
	r := &replay{shape: shape, random: random, tick: func() {
		done++
		o.Progress(Progress{Stage: Replaying, Done: done, Total: total})
	}}
	room := int(o.MemoryBytes / exampleBytes(shape))
	most := func(share float64, tokens int) int { return max(min(int(share*float64(room)), tokens*shape.Layers), 1) }
	each, held := most(0.4, s.trainTokens), most(0.1, s.heldTokens)
	x := newExamples(shape, 2*each)
	h := heldOut{warm: newExamples(shape, held), cold: newExamples(shape, held)}
	for _, run := range []struct {
		into   *examples
		need   int
		parts  []part
		tokens int
		births []int
	}{
		{x, each, s.train, s.trainTokens, births(s.trainTokens)},
		{x, each, s.train, s.trainTokens, births(0)},
		{h.warm, held, s.held, s.heldTokens, nil},
		{h.cold, held, s.held, s.heldTokens, births(0)},
	} {
		r.into, r.sampler = run.into, sampler{random: random, need: run.need, left: run.tokens * shape.Layers}
		if err := r.run(ctx, run.parts, run.births); err != nil {
			return nil, heldOut{}, err
		}
	}
	return x, h, nil
}
