package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"outrider/experts"
	"outrider/layout"
	"outrider/prefetcher"
	"outrider/router"
)

// Runtime serves the experts of one model from a store within a byte budget.
// Safe for concurrent use. Whoever opens it closes it.
type Runtime struct {
	source      layout.Source
	files       io.Closer // what the source's files were opened with
	model       string
	shape       layout.Shape
	log         *slog.Logger
	projections bool // Options.Projections

	cache    *experts.Cache
	fixed    experts.Stacked // of the cache; nil: pooled
	reads    *prefetcher.Prefetcher
	forecast *forecaster // nil: nothing is forecast

	// order is Options.Order, if any, and the lock that its calls are made under.
	order struct {
		sync.Mutex
		router.Order
		choices []router.Choice // scratch
	}

	room   room // of the budget, that uses may pin
	budget budget

	ctx      context.Context // ends with Close
	cancel   context.CancelCauseFunc
	step     atomic.Int64 // layers executed since Open
	sessions atomic.Int64
	counters counters
	hints    hintCounters

	mu     sync.Mutex
	closed bool
	spare  []*use
}

// Shape is the model's shape.
func (rt *Runtime) Shape() layout.Shape { return rt.shape }

// Model is the model's name as the store or checkpoint has it.
func (rt *Runtime) Model() string { return rt.model }

// Predictor is what forecasts the router: Options.Predictor or the default, made
// to take hints; nil if nothing is forecast. router.Save keeps what it has
// learned, also while the runtime is in use. Given as the Predictor of another
// runtime over the same model it goes on from there.
func (rt *Runtime) Predictor() router.Predictor {
	if rt.forecast == nil {
		return nil
	}
	return rt.forecast.predictor
}

// Record describes the projections of a layer's experts in the order the layer
// consumes them. The slice is shared: do not change it.
func (rt *Runtime) Record(layer int) []layout.Projection { return rt.source.Record(layer) }

// Use tells what the router of a layer chose for the tokens of a pass over one
// or several sessions, and starts bringing the union of those experts. It never
// waits. Parts and their choices are not kept. Several sessions of one pass
// belong in one call: a use that waits for memory held by another use waits
// until that one is released.
func (rt *Runtime) Use(ctx context.Context, layer int, parts []Routed) (Use, error) {
	if err := rt.check(ctx, layer); err != nil {
		return Use{}, err
	}
	u := rt.takeUse()
	if err := u.collect(layer, parts); err != nil {
		rt.putUse(u)
		return Use{}, err
	}
	rt.cache.Step()
	step := rt.step.Add(1)
	rt.reads.Progress(step)
	rt.rank(layer, parts)
	u.begin()
	waves := u.claim.all > rt.budget.now.Load()
	for _, part := range parts {
		if layer == 0 {
			rt.counters.tokens.Add(int64(len(part.Choices)))
		}
		if part.Session != nil {
			part.Session.entered(layer, part.Choices)
		}
		rt.forecast.observe(part, layer, step, waves)
	}
	return Use{u: u, gen: u.generation()}, nil
}

// rank tells a given order of eviction what was chosen.
func (rt *Runtime) rank(layer int, parts []Routed) {
	if rt.order.Order == nil {
		return
	}
	rt.order.Lock()
	defer rt.order.Unlock()
	all := rt.order.choices[:0]
	for _, part := range parts {
		all = append(all, part.Choices...)
	}
	rt.order.Routed(layer, all)
	clear(all) // choices are not kept
	rt.order.choices = all
	rt.cache.Invalidate(layer)
}

func (rt *Runtime) check(ctx context.Context, layer int) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if rt.ctx.Err() != nil {
		return ErrClosed
	}
	if layer < 0 || layer >= rt.shape.Layers {
		return fmt.Errorf("runtime: layer %d is outside the model's 0 to %d (MoE layers, in execution order)", layer, rt.shape.Layers-1)
	}
	return nil
}

// Preload reads experts in layer order until the budget is full or all are in
// memory. It counts as no use and teaches the forecast nothing.
func (rt *Runtime) Preload(ctx context.Context) error {
	var loaded int64
	budget := rt.budget.now.Load()
	for layer := range rt.shape.Layers {
		bytes := rt.source.SlotBytes(layer)
		n := min(int64(rt.shape.Experts), (budget-loaded)/bytes)
		if n <= 0 {
			return nil
		}
		loaded += n * bytes
		if err := rt.preloadLayer(ctx, layer, int(n)); err != nil {
			return err
		}
	}
	return nil
}

func (rt *Runtime) preloadLayer(ctx context.Context, layer, n int) error {
	if err := rt.check(ctx, layer); err != nil {
		return err
	}
	u := rt.takeUse()
	u.reset(layer)
	u.quiet = true
	for e := range n {
		u.held = append(u.held, held{index: int32(e)})
	}
	u.begin()
	use := Use{u: u, gen: u.generation()}
	defer use.Release()
	for expert, err := range use.Ready(ctx) {
		if err != nil {
			return err
		}
		expert.Release()
	}
	return nil
}

func (rt *Runtime) takeUse() *use {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if n := len(rt.spare); n > 0 {
		u := rt.spare[n-1]
		rt.spare = rt.spare[:n-1]
		return u
	}
	return newUse(rt)
}

func (rt *Runtime) putUse(u *use) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.spare = append(rt.spare, u)
}

func (rt *Runtime) lanes() []LaneStats {
	var lanes []LaneStats
	largest := largestSlot(rt.source)
	for _, l := range rt.source.Lanes() {
		lanes = append(lanes, LaneStats{
			Path: l.Path, Engine: layout.EngineFor(l.File, largest),
			Direct: layout.IsDirect(l.File), Fallback: layout.FallbackReason(l.File),
		})
	}
	return lanes
}

// Close ends the runtime: it cancels what waits, joins the runtime's goroutines
// and closes the store. Experts still leased stay valid until released. A read
// that hangs in the operating system is waited for. The log gets what the runtime
// did and the most memory it used. A second Close does nothing.
func (rt *Runtime) Close() error {
	rt.mu.Lock()
	closed := rt.closed
	rt.closed = true
	rt.mu.Unlock()
	if closed {
		return nil
	}
	rt.cancel(ErrClosed)
	if rt.forecast != nil {
		<-rt.forecast.done
	}
	<-rt.budget.done
	err := rt.reads.Close()
	rt.logEnd()
	return errors.Join(err, rt.cache.Close(), rt.source.Close(), rt.files.Close())
}
