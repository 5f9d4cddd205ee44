package iobench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"outrider/layout"
	"outrider/router"
	"outrider/runtime"
	"outrider/trace"
)

// hits uses experts that are all in memory: what the runtime costs when it has
// nothing to read.
type hits struct {
	rt     *runtime.Runtime
	s      *runtime.Session
	layers int
	layer  int
	choice [1]router.Choice
}

// newHits opens the target and brings one batch of each of its first layers into
// memory. Forecast says whether the forecaster learns beside it.
func newHits(ctx context.Context, t *Target, fsys layout.FS, o runtime.Options, forecast bool) (*hits, error) {
	src, err := t.Open(fsys)
	if err != nil {
		return nil, fmt.Errorf("iobench: %w", err)
	}
	h := &hits{layers: min(t.Shape.Layers, leastLayers)}
	for e := range t.Experts {
		h.choice[0].Experts = append(h.choice[0].Experts, int32(e))
		h.choice[0].Weights = append(h.choice[0].Weights, 1/float32(t.Experts))
	}
	o.BudgetBytes, o.FixedBudget = int64(h.layers*t.Experts)*t.RecordBytes, true
	o.NoSpeculation, o.Keep = true, runtime.KeepLRU
	if forecast {
		o.Keep = runtime.KeepForecast
	}
	if h.rt, err = runtime.New(src, o); err != nil {
		return nil, fmt.Errorf("iobench: %w", err)
	}
	h.s = h.rt.NewSession()
	for range h.layers {
		if err := h.bring(ctx); err != nil {
			return nil, errors.Join(err, h.close())
		}
	}
	return h, nil
}

// bring waits for a batch of the next layer.
func (h *hits) bring(ctx context.Context) error {
	use, err := h.next(ctx)
	if err != nil {
		return err
	}
	defer use.Release()
	return use.Wait(ctx)
}

func (h *hits) next(ctx context.Context) (runtime.Use, error) {
	if h.layer == 0 {
		h.s.Step(trace.Decode, nil)
	}
	use, err := h.s.Use(ctx, h.layer, h.choice[:])
	h.layer = (h.layer + 1) % h.layers
	return use, err
}

// use is an operation: Use and Release of a batch in memory.
func (h *hits) use(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	use, err := h.next(ctx)
	if err != nil {
		return 0, err
	}
	use.Release()
	return time.Since(began), nil
}

// slice measures so many uses. All must be hits.
func (h *hits) slice(ctx context.Context, rec *record, uses int64) (Slice, error) {
	for range 4 * h.layers { // into the steady state
		if _, err := h.use(ctx); err != nil {
			return Slice{}, err
		}
	}
	before := h.rt.Stats()
	s, err := rec.measure(ctx, limits{ops: uses}, h.use)
	after := h.rt.Stats()
	if missed := (after.Lookups - before.Lookups) - (after.Hits - before.Hits); missed != 0 && err == nil {
		err = fmt.Errorf("iobench: %d experts were read in the arm that needs none to be", missed)
	}
	return s, err
}

func (h *hits) close() error { return errors.Join(h.s.Close(), h.rt.Close()) }
