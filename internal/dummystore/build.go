package dummystore

import (
	"context"
	"fmt"

	"outrider/layout"
)

// Architecture is what a dummy store's manifest names as the model's
// architecture, and Format as the checkpoint's format: whoever reports figures
// from one should say so.
const (
	Architecture = "dummy"
	Format       = "dummy"
)

// Options say what to build.
type Options struct {
	Shape layout.Shape
	// RecordBytes are the tensor bytes of each expert, 1 to 32 GiB. Alignment
	// adds about 1 % on disk at most, more for experts under 64 KiB.
	RecordBytes int64

	FS    layout.WriteFS    // nil means layout.OS()
	Dir   string            // the store's folder, which must not exist; its parent must
	Lanes []layout.LaneSpec // nil means one lane, in Dir
	// Progress is told how many bytes of the work are done, as by layout.Build:
	// everything is written once and read back once. It may be called from
	// several goroutines at once; nil means nobody asks.
	Progress func(done, total int64)
	// DiscardUnfinished removes what a killed build left beside the target.
	DiscardUnfinished bool
}

// Plan works out the store without writing: Plan.Bytes is what its lanes will
// take. Dir and FS are not needed. Errors are layout.ErrCheckpoint for a shape
// or size that no model can have, and layout.ErrPlan for lanes.
func Plan(o Options) (*layout.Plan, error) {
	_, plan, err := o.plan()
	return plan, err
}

// Build makes the store. It writes beside the target, reads back what it wrote,
// and leaves nothing when it fails or when ctx ends. Free space is checked
// first. Errors are those of Plan and layout.Build: ErrExists, ErrNoSpace,
// ErrUnfinished and others.
func Build(ctx context.Context, o Options) (*layout.BuildReport, error) {
	cp, plan, err := o.plan()
	if err != nil {
		return nil, err
	}
	if o.FS == nil {
		o.FS = layout.OS()
	}
	report, err := layout.Build(ctx, layout.BuildOptions{
		FS: sourceFS{WriteFS: o.FS, size: cp.Files[0].Size}, Dir: o.Dir, Plan: plan, Checkpoint: &cp,
		Progress: o.Progress, DiscardUnfinished: o.DiscardUnfinished,
	})
	if err != nil {
		return nil, fmt.Errorf("dummystore: %w", err)
	}
	return report, nil
}

func (o Options) plan() (layout.Checkpoint, *layout.Plan, error) {
	cp, err := describe(o.Shape, o.RecordBytes)
	if err != nil {
		return cp, nil, err
	}
	plan, err := layout.PlanStore(cp, layout.PlanOptions{Lanes: o.Lanes})
	if err != nil {
		return cp, nil, fmt.Errorf("dummystore: %w", err)
	}
	return cp, plan, nil
}
