package gain

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"outrider/layout"
)

// Measure packs a sample of the checkpoint's experts, reads both and compares. It
// leaves no file behind, whether it succeeds, fails or is cancelled. When ctx ends
// it returns the context's cause as soon as the reads under way have ended.
//
// Errors: ErrSpace, ErrTime, layout.ErrNoSpace, those of layout.OpenInPlace and
// layout.Build; that of a read names file, offset and expert.
func Measure(ctx context.Context, o Options) (result *Result, err error) {
	o, err = o.withDefaults()
	if err != nil {
		return nil, err
	}
	m := &meter{o: o, began: time.Now(), random: rand.New(rand.NewPCG(sampleSeed, 1))}
	result = &Result{Depth: o.Depth, RawDepth: o.RawDepth}
	align, err := result.count(o)
	if err != nil {
		return nil, err
	}
	if m.sample, err = newSample(o.Checkpoint, o.SpaceBytes); err != nil {
		return nil, err
	}
	packed, err := pack(ctx, o, m.sample, align, m.progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, packed.end()) }()
	m.store = packed.store
	if err := m.open(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	result.describe(m, packed)
	if err := m.measure(ctx, result); err != nil {
		return nil, err
	}
	return result, nil
}

func (m *meter) measure(ctx context.Context, result *Result) error {
	rounds, err := m.rounds(ctx)
	if err != nil {
		return err
	}
	again, err := m.again(ctx, rounds[0])
	if err != nil {
		return err
	}
	result.Again = again.Seconds() / rounds[0].inPlace.Seconds()
	tensors := 0.0
	for l := range m.o.Checkpoint.Layers {
		tensors += float64(m.o.Checkpoint.Shape.TopK) * float64(expertBytes(m.o.Checkpoint, l))
	}
	result.conclude(rounds, tensors)
	return nil
}

// count works out what can be known without reading: reads and bytes of a token,
// and the store's size. It returns the alignment that a store would have.
func (r *Result) count(o Options) (align int64, err error) {
	plan, err := layout.PlanStore(*o.Checkpoint, layout.PlanOptions{})
	if err != nil {
		return 0, fmt.Errorf("gain: %w", err)
	}
	inPlace, err := layout.OpenInPlace(o.Reads, *o.Checkpoint, layout.Direct)
	if err != nil {
		return 0, fmt.Errorf("gain: %w", err)
	}
	defer func() { err = errors.Join(err, inPlace.Close()) }()
	shape := o.Checkpoint.Shape
	var reads, bytes, pieces int64
	var place layout.Placement
	for i := range shape.Count() {
		id := shape.ID(i)
		if err := inPlace.Locate(id, &place); err != nil {
			return 0, fmt.Errorf("gain: %w", err)
		}
		reads += int64(len(place.Reads))
		for _, read := range place.Reads {
			bytes += read.Need
		}
		pieces += int64(len(plan.Pieces(id)))
	}
	perToken := float64(shape.TopK) / float64(shape.Experts) // of what all experts together have
	count := float64(shape.Count())
	r.InPlace.ReadsPerExpert, r.InPlace.ReadsPerToken, r.InPlace.BytesPerToken = float64(reads)/count, float64(reads)*perToken, float64(bytes)*perToken
	r.Store.ReadsPerExpert, r.Store.ReadsPerToken, r.Store.BytesPerToken = float64(pieces)/count, float64(pieces)*perToken, float64(plan.Bytes())*perToken
	r.StoreBytes = plan.Bytes()
	return plan.Align, nil
}

// describe notes what is read, and how.
func (r *Result) describe(m *meter, packed *temporary) {
	shape := m.sample.cp.Shape
	r.Sample = Sample{Layers: shape.Layers, Experts: shape.Experts, Batch: shape.TopK}
	for _, ids := range m.sample.batches {
		r.Sample.Bytes += m.sample.bytes(ids)
	}
	r.RawBlockBytes = m.raw.size
	r.BuildSeconds = packed.took.Seconds() * float64(r.StoreBytes) / float64(packed.bytes)
	r.InPlace.reads(m.inPlace)
	r.Store.reads(m.store)
	r.SameDrive = sameDrive(m.o)
}

// reads says how a source is read here; the worst of its lanes counts.
func (a *Arm) reads(source layout.Source) {
	a.Direct = true
	for _, lane := range source.Lanes() {
		if a.Engine == "" || a.Direct && !layout.IsDirect(lane.File) {
			a.Engine, a.Fallback = layout.Engine(lane.File), layout.FallbackReason(lane.File)
			a.Direct = layout.IsDirect(lane.File)
		}
	}
}

// sameDrive reports that all files of the checkpoint lie on the drive of the
// folder, as far as the system tells.
func sameDrive(o Options) bool {
	dir, err := o.FS.Stat(o.Dir)
	if err != nil {
		return false
	}
	for _, f := range o.Checkpoint.Files {
		info, err := o.FS.Stat(filepath.Dir(f.Path))
		if err != nil || !layout.SameDevice(info, dir) {
			return false
		}
	}
	return true
}
