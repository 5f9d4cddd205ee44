package iobench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"outrider/layout"
	"outrider/router"
	"outrider/runtime"
)

// runner stands for a model over one target: it goes through the layers and uses a
// batch of each. It does not compute.
type runner struct {
	target *Target
	rt     *runtime.Runtime
	s      *runtime.Session
	picks  []*picks // by layer
	layer  int
	choice [1]router.Choice // its experts are written anew for each use
	ahead  runtime.Use      // of the pipeline
	filled bool             // there is one
}

// newRunner opens the target for a runtime with the options, in which nothing is
// forecast and two batches have room.
func newRunner(t *Target, fsys layout.FS, o runtime.Options, wrap func(layout.Source) layout.Source) (*runner, error) {
	src, err := t.Open(fsys)
	if err != nil {
		return nil, fmt.Errorf("iobench: %w", err)
	}
	o.BudgetBytes, o.FixedBudget = batchesAtHand*int64(t.Experts)*t.RecordBytes, true
	o.Keep, o.NoSpeculation = runtime.KeepLRU, true
	rt, err := runtime.New(wrap(src), o)
	if err != nil {
		return nil, fmt.Errorf("iobench: %w", err)
	}
	r := &runner{target: t, rt: rt, s: rt.NewSession(), choice: [1]router.Choice{{Experts: make([]int32, t.Experts)}}}
	for l := range t.Shape.Layers {
		r.picks = append(r.picks, newPicks(t.Shape.Experts, t.recent(), uint64(l)))
	}
	return r, nil
}

// use asks for n experts of the next layer that are not in memory.
func (r *runner) use(ctx context.Context, n int) (runtime.Use, error) {
	r.choice[0].Experts = r.choice[0].Experts[:n]
	for i := range r.choice[0].Experts {
		r.choice[0].Experts[i] = r.picks[r.layer].next()
	}
	use, err := r.s.Use(ctx, r.layer, r.choice[:])
	r.layer = (r.layer + 1) % r.target.Shape.Layers
	return use, err
}

// batch is an operation: n experts asked for, waited for and released.
func (r *runner) batch(n int) operation {
	return func(ctx context.Context) (time.Duration, error) {
		began := time.Now()
		use, err := r.use(ctx, n)
		if err != nil {
			return 0, err
		}
		defer use.Release()
		err = use.Wait(ctx)
		return time.Since(began), err
	}
}

// pipeline is an operation: the next batch is asked for, and then the one before it
// waited for and released, so that the drive always has one to read.
func (r *runner) pipeline(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	next, err := r.use(ctx, r.target.Experts)
	if err != nil {
		return 0, err
	}
	if r.filled {
		err = r.ahead.Wait(ctx)
		r.ahead.Release()
	}
	r.ahead, r.filled = next, true
	return time.Since(began), err
}

// drain ends the pipeline, so that what is measured next has the drive for itself.
func (r *runner) drain(ctx context.Context) error {
	if !r.filled {
		return nil
	}
	r.filled = false
	defer r.ahead.Release()
	return r.ahead.Wait(ctx)
}

// read is the bytes that were read so far.
func (r *runner) read() int64 {
	s := r.rt.Stats().Reads
	return s.DemandBytes + s.SpeculativeBytes
}

// slice measures an operation for a while, after one to get going.
func (r *runner) slice(ctx context.Context, rec *record, l limits, op operation) (Slice, error) {
	if _, err := op(ctx); err != nil {
		return Slice{}, err
	}
	before := r.read()
	s, err := rec.measure(ctx, l, op)
	s.Bytes = r.read() - before
	return s, err
}

func (r *runner) close() error {
	if r.filled {
		r.ahead.Release()
	}
	return errors.Join(r.s.Close(), r.rt.Close())
}

// asItIs leaves the source alone.
func asItIs(src layout.Source) layout.Source { return src }

// unsummed is a source whose checksums are left out, as a raw reader does.
type unsummed struct{ layout.Source }

func withoutSums(src layout.Source) layout.Source { return unsummed{src} }

// Locate is the source's, without checksums.
func (u unsummed) Locate(id layout.ExpertID, p *layout.Placement) error {
	err := u.Source.Locate(id, p)
	for i := range p.Parts {
		p.Parts[i].Sum, p.Parts[i].Summed = 0, false
	}
	return err
}
