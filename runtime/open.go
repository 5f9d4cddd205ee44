package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"outrider/experts"
	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/prefetcher"
	"outrider/router"
)

// Open opens a store, or a checkpoint in place (GGUF or safetensors), and starts the runtime's
// goroutines. A split checkpoint is named by any of its shards. The context
// limits opening only; Close ends the runtime.
//
// Errors are those of layout.OpenStore and checkpoint.Read for files,
// experts.ErrBelowFloor (with the bytes needed) for a budget too small for one
// layer of one token.
func Open(ctx context.Context, path string, o Options) (*Runtime, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("runtime: open %s: %w", path, err)
	}
	o = o.withDefaults()
	fsys, files, reason, err := o.files()
	if err != nil {
		return nil, fmt.Errorf("runtime: open %s: %w", path, err)
	}
	model, err := checkpoint.Open(fsys, path, o.mode())
	if err != nil {
		return nil, fmt.Errorf("runtime: open %s: %w", path, errors.Join(err, files.Close()))
	}
	rt, err := start(model.Source, model.Name, o)
	if err != nil {
		return nil, fmt.Errorf("runtime: open %s: %w", path, errors.Join(err, model.Source.Close(), files.Close()))
	}
	rt.files = files
	if reason != "" {
		rt.log.Info("reads do not go through io_uring", "reason", reason)
	}
	return rt, nil
}

// New starts a runtime over a source that the caller opened. The runtime closes
// the source, also when New fails. Options that say how files are opened are
// refused.
func New(source layout.Source, o Options) (*Runtime, error) {
	err := errors.Join(o.Validate(), o.refuseFiles())
	if err == nil {
		var rt *Runtime
		if rt, err = start(source, "", o.withDefaults()); err == nil {
			return rt, nil
		}
	}
	source.Close()
	return nil, err
}

// start builds the parts and starts their goroutines; on an error none is left.
func start(source layout.Source, model string, o Options) (*Runtime, error) {
	shape := source.Shape()
	rt := &Runtime{projections: o.Projections, source: source, files: noFiles{}, model: model, shape: shape, log: o.Logger}
	rt.ctx, rt.cancel = context.WithCancelCause(context.Background())
	keeper, policy, err := rt.ranking(o)
	if err != nil {
		return nil, err
	}
	if err := rt.startMemory(policy, o); err != nil {
		return nil, err
	}
	reads, err := readOptions(o, source)
	if err == nil {
		reads.Cache = rt.cache
		rt.reads, err = prefetcher.New(reads)
	}
	if err != nil {
		return nil, errors.Join(err, rt.cache.Close())
	}
	if err := rt.startForecast(keeper, o); err != nil {
		return nil, errors.Join(err, rt.reads.Close(), rt.cache.Close())
	}
	go rt.tend(rt.ctx)
	rt.logConfiguration(o, reads)
	return rt, nil
}

// ranking is what ranks the experts that are kept: the keeper if the forecast does,
// and the policy, nil for recency.
func (rt *Runtime) ranking(o Options) (*router.Keeper, experts.Policy, error) {
	switch {
	case o.Order != nil:
		rt.order.Order = o.Order
		return nil, o.Order, nil
	case o.forecastKeeps():
		keeper, err := router.NewKeeper(rt.shape)
		if err != nil {
			return nil, nil, err
		}
		return keeper, keeper, nil
	}
	return nil, nil, nil
}

// startMemory makes the cache, and the room that uses share.
func (rt *Runtime) startMemory(policy experts.Policy, o Options) error {
	bytes, err := chooseBudget(o)
	if err != nil {
		return err
	}
	slots := slotBytes(rt.source)
	if rt.fixed, err = o.newMemory(rt.shape, slots); err != nil {
		return err
	}
	co := experts.Options{
		Shape: rt.shape, Bytes: slots, BudgetBytes: bytes, Policy: policy, Protect: 1,
		Lock: o.Lock, Poison: o.Poison, Logger: o.Logger, Freed: func() { rt.reads.RoomFreed() },
	}
	if rt.fixed != nil {
		co.Memory = rt.fixed
	}
	if rt.cache, err = experts.New(co); err != nil {
		if rt.fixed != nil {
			err = errors.Join(err, rt.fixed.Close())
		}
		return err
	}
	rt.room.size = bytes
	watch, err := rt.newPressure(o, bytes)
	if err != nil {
		return errors.Join(err, rt.cache.Close())
	}
	rt.budget.start(bytes, watch)
	return nil
}

func (rt *Runtime) startForecast(keeper *router.Keeper, o Options) error {
	if !o.forecasts() {
		return nil
	}
	predictor := o.Predictor
	if predictor == nil {
		online, err := router.NewOnline(rt.shape, router.OnlineOptions{})
		if err != nil {
			return err
		}
		predictor = online
	}
	rt.forecast = newForecaster(rt, predictor, keeper, o)
	go rt.forecast.run(rt.ctx)
	return nil
}

// slotBytes is what an expert of each layer is charged.
func slotBytes(source layout.Source) []int64 {
	bytes := make([]int64, source.Shape().Layers)
	for l := range bytes {
		bytes[l] = source.SlotBytes(l)
	}
	return bytes
}

func largestSlot(source layout.Source) int64 { return slices.Max(slotBytes(source)) }

func chooseBudget(o Options) (int64, error) {
	if o.BudgetBytes > 0 {
		return o.BudgetBytes, nil
	}
	auto, err := experts.AutoBudget()
	if err != nil {
		return 0, err
	}
	o.Logger.Info("budget chosen", "bytes", auto.Bytes, "reason", auto.Reason)
	return auto.Bytes, nil
}
