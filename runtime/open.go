package runtime

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"

	"outrider/experts"
	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/prefetcher"
	"outrider/router"

	"golang.org/x/sync/semaphore"
)

// Open opens a store, or a GGUF checkpoint in place, and starts the runtime's
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
	model, err := checkpoint.Open(o.FS, path, o.mode())
	if err != nil {
		return nil, fmt.Errorf("runtime: open %s: %w", path, err)
	}
	rt, err := start(model.Source, model.Name, o)
	if err != nil {
		model.Source.Close()
		return nil, fmt.Errorf("runtime: open %s: %w", path, err)
	}
	return rt, nil
}

// New starts a runtime over a source that the caller opened. The runtime closes
// the source, also when New fails.
func New(source layout.Source, o Options) (*Runtime, error) {
	err := o.Validate()
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
	budget, err := chooseBudget(o)
	if err != nil {
		return nil, err
	}
	shape := source.Shape()
	rt := &Runtime{source: source, model: model, shape: shape, log: o.Logger}
	rt.ctx, rt.cancel = context.WithCancelCause(context.Background())

	var keeper *router.Keeper
	var policy experts.Policy // nil ranks by recency
	switch {
	case o.Order != nil:
		policy, rt.order.Order = o.Order, o.Order
	case o.forecastKeeps():
		if keeper, err = router.NewKeeper(shape); err != nil {
			return nil, err
		}
		policy = keeper
	}
	rt.cache, err = experts.New(experts.Options{
		Shape: shape, Bytes: slotBytes(source), BudgetBytes: budget, Policy: policy,
		Protect: 1, Poison: o.Poison, Logger: o.Logger, Freed: func() { rt.reads.RoomFreed() },
	})
	if err != nil {
		return nil, err
	}
	rt.budget = budget
	rt.room = semaphore.NewWeighted(budget)
	rt.reads, err = prefetcher.New(prefetcher.Options{
		Source: source, Cache: rt.cache, Workers: o.Workers, Logger: o.Logger,
		NoSpeculation: o.NoSpeculation || !o.forecasts(),
	})
	if err != nil {
		rt.cache.Close()
		return nil, err
	}
	if err := rt.startForecast(keeper, o); err != nil {
		rt.reads.Close()
		rt.cache.Close()
		return nil, err
	}
	rt.logConfiguration(o)
	return rt, nil
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

// logConfiguration tells what is really in effect, so that no option can be
// switched off without a word.
func (rt *Runtime) logConfiguration(o Options) {
	predictor := "none"
	if rt.forecast != nil {
		predictor = rt.forecast.name
	}
	horizon := "auto"
	if o.Horizon > 0 {
		horizon = strconv.Itoa(o.Horizon)
	}
	rt.log.Info("runtime open",
		"model", rt.model, "layers", rt.shape.Layers, "experts", rt.shape.Experts, "top_k", rt.shape.TopK,
		"budget_bytes", rt.budget, "forecast", predictor, "keep", o.keepText(),
		"speculation", rt.forecast != nil && !o.NoSpeculation, "horizon", horizon)
	for _, lane := range rt.lanes() {
		level := slog.LevelInfo
		if lane.Fallback != "" {
			level = slog.LevelWarn
		}
		rt.log.Log(context.Background(), level, "lane open", "path", lane.Path, "direct", lane.Direct, "fallback", lane.Fallback)
	}
}
