package refmodel

import (
	"context"
	"errors"
	"fmt"

	"outrider/internal/dequant"
	"outrider/layout"
	"outrider/router"
	"outrider/runtime"
	"outrider/trace"
)

// New returns a generator over a runtime that holds the model's experts: its
// store, or the checkpoint opened in place. The runtime stays the caller's and
// must outlive the generator.
func New(m *Model, rt *runtime.Runtime, o Options) (*Generator, error) {
	if err := fits(m, rt.Shape(), rt.Record); err != nil {
		return nil, fmt.Errorf("refmodel: %w", err)
	}
	open := func() (experts, error) {
		s := &streamed{session: rt.NewSession(), looks: o.Lookahead}
		if o.OnSession != nil {
			if err := o.OnSession(s.session); err != nil {
				return nil, errors.Join(err, s.close())
			}
		}
		return s, nil
	}
	return newGenerator(m, open, o)
}

// streamed is one sequence's expert weights from the runtime.
type streamed struct {
	session *runtime.Session
	looks   bool // ahead
	lent    lent // reused, so that handing an expert on does not allocate
}

var _ experts = (*streamed)(nil)

func (s *streamed) step(phase trace.Phase, tokens []int32) { s.session.Step(phase, tokens) }

// look costs a copy. It gives up where the runtime cannot look ahead, which it logs
// where that is a fault: a guess must not stop a runner.
func (s *streamed) look(layer int, hidden []float32) {
	s.looks = s.looks && s.session.Lookahead(layer, hidden) == nil
}

func (s *streamed) close() error { return s.session.Close() }

// each hands every expert back as soon as it is computed: a pass may use more
// experts than fit in the budget.
func (s *streamed) each(ctx context.Context, layer int, choices []router.Choice, compute func(expert) error) error {
	use, err := s.session.Use(ctx, layer, choices)
	if err != nil {
		return err
	}
	defer use.Release()
	for e, err := range use.Ready(ctx) {
		if err != nil {
			return err
		}
		s.lent.Expert = e
		err = compute(&s.lent)
		e.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// lent shows the model an expert of the runtime.
type lent struct{ runtime.Expert }

func (l *lent) part(name string) (weights, bool) {
	t, ok := l.Projection(name)
	if !ok || len(t.Dims) != 2 {
		return weights{}, false
	}
	return weights{typ: t.Type, cols: int(t.Dims[0]), rows: int(t.Dims[1]), data: t.Data}, true
}

// fits checks that the runtime's experts are those of the model, before the first pass.
func fits(m *Model, shape layout.Shape, record func(layer int) []layout.Projection) error {
	c := m.Config
	if !shape.Equal(layout.Shape{Layers: c.Blocks, Experts: c.Experts, TopK: c.TopK}) {
		return fmt.Errorf("%w: they have %d layers of %d experts, top %d; the model %d of %d, top %d, one in every block",
			ErrExperts, shape.Layers, shape.Experts, shape.TopK, c.Blocks, c.Experts, c.TopK)
	}
	for layer := range shape.Layers {
		for _, p := range record(layer) {
			if err := c.projection(p); err != nil {
				return fmt.Errorf("layer %d: projection %q: %w", layer, p.Name, err)
			}
		}
	}
	return nil
}

// projection checks that a projection is one the model computes with.
func (c Config) projection(p layout.Projection) error {
	want := map[string][2]int{
		"gate": {c.Hidden, c.ExpertHidden}, "up": {c.Hidden, c.ExpertHidden},
		"gate_up": {c.Hidden, 2 * c.ExpertHidden}, "down": {c.ExpertHidden, c.Hidden},
	}
	dims, ok := want[p.Name]
	if !ok {
		return fmt.Errorf("%w: %s experts have gate, up and down only", ErrExperts, Architecture)
	}
	if len(p.Dims) != 2 || p.Dims[0] != int64(dims[0]) || p.Dims[1] != int64(dims[1]) {
		return fmt.Errorf("%w: dimensions %v, want %v", ErrExperts, p.Dims, dims)
	}
	format, err := dequant.Lookup(p.Type)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrExperts, err)
	}
	if bytes := int64(format.RowBytes(dims[0])) * p.Dims[1]; dims[0]%format.Block != 0 || bytes != p.Bytes {
		return fmt.Errorf("%w: %d bytes of %s, want %d", ErrExperts, p.Bytes, p.Type, bytes)
	}
	return nil
}
