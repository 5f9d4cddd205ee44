package runtime

import (
	"fmt"
	"sync/atomic"

	"outrider/layout"
	"outrider/router"
)

// Lookahead applies the routers of the next layers to the hidden state that the
// router of a layer saw of one token (its input, after the norm), and hints what
// they choose: the next layer's, and as many more as Options.LookaheadLayers says
// and a read takes. The routers come from the store, or from the checkpoint that
// is served in place.
//
// A later router really sees another state, normalised by its own layer's weights;
// that the earlier one is close enough is what makes this work, and how close is
// learned for each layer. Call it as soon as the state is known, before Use of the
// layer if that is possible. Several tokens of a pass are told one by one; their
// hints join.
//
// It copies the state and never waits: the forecaster's goroutine computes
// (experts × width multiplications a layer), loads each router when it is first
// needed, and drops what comes when it is behind.
//
// Errors: layout.ErrNoRouters, with the reason and the remedy, if there are no
// routers; one that names both widths if the state is of another; one that names
// the file if a router could not be loaded; ErrClosed. After the last layer, and
// where nothing is forecast, it does nothing.
func (s *Session) Lookahead(layer int, hidden []float32) error {
	f := s.rt.forecast
	switch {
	case s.rt.ctx.Err() != nil:
		return ErrClosed
	case f == nil || s.closed.Load():
		return nil
	}
	if err := f.look.check(s.rt, layer, hidden); err != nil {
		s.rt.hints.refused.Add(1)
		return err
	}
	if layer == s.rt.shape.Layers-1 {
		return nil
	}
	e := f.take(eventLookahead, s)
	if e == nil {
		return nil
	}
	s.rt.hints.told.Add(1)
	e.layer, e.step = layer, s.rt.step.Load()
	e.weights = append(e.weights, hidden...)
	f.push(e)
	return nil
}

// lookahead is what the runtime knows of the model's routers.
type lookahead struct {
	layers  int             // ahead, at most
	routers *layout.Routers // nil: missing says why
	missing error
	failed  atomic.Pointer[error] // why a router could not be loaded

	// Of the forecaster's goroutine alone.
	guesser  *router.Guesser
	matrices []*layout.RouterMatrix // nil until first needed
	hashed   *hashed                // nil without routers
}

func newLookahead(source layout.Source, o Options) *lookahead {
	l := &lookahead{layers: max(o.LookaheadLayers, 1)}
	from, ok := source.(layout.RouterSource)
	if !ok {
		l.missing = fmt.Errorf("%w: this kind of source holds none; open a store or a checkpoint", layout.ErrNoRouters)
		return l
	}
	if l.routers, l.missing = from.Routers(); l.missing == nil {
		l.guesser = router.NewGuesser(source.Shape(), l.routers.RouterRule)
		l.matrices = make([]*layout.RouterMatrix, source.Shape().Layers)
		l.hashed = newHashed(l.routers, source.Shape())
	}
	return l
}

// check says why a look-ahead cannot be.
func (l *lookahead) check(rt *Runtime, layer int, hidden []float32) error {
	switch {
	case l.missing != nil:
		return fmt.Errorf("runtime: lookahead: %w", l.missing)
	case layer < 0 || layer >= rt.shape.Layers:
		return fmt.Errorf("runtime: lookahead: layer %d is outside the model's 0 to %d (MoE layers, in execution order)", layer, rt.shape.Layers-1)
	case len(hidden) != l.routers.Width:
		return fmt.Errorf("runtime: lookahead: the hidden state has %d numbers, the routers of %q have %d columns", len(hidden), rt.model, l.routers.Width)
	}
	if err := l.failed.Load(); err != nil {
		return fmt.Errorf("runtime: lookahead: %w", *err)
	}
	return nil
}

// matrix is a layer's router, nil if it cannot be loaded.
func (l *lookahead) matrix(rt *Runtime, layer int) *layout.RouterMatrix {
	if l.matrices[layer] != nil || l.failed.Load() != nil {
		return l.matrices[layer]
	}
	m, err := l.routers.Load(layer)
	if err != nil {
		rt.log.Warn("look-ahead is off: a router cannot be loaded", "layer", layer, "error", err)
		l.failed.Store(&err)
		return nil
	}
	l.matrices[layer] = m
	return m
}

// ahead hints what the routers of the next layers choose by the event's state.
// Layers that one of the later events finds executed are left out.
func (l *lookahead) ahead(f *forecaster, q *router.Sequence, e *event, later []*event) {
	for d := 1; d <= min(l.layers, max(f.reach(q), 1)) && e.layer+d < f.rt.shape.Layers; d++ {
		target := e.layer + d
		if overtaken(later, e.session, target) || l.routers.Layers[target].Hash.Type != "" {
			continue // behind already, or chosen by the token: there a state tells nothing
		}
		m := l.matrix(f.rt, target)
		if m == nil {
			return
		}
		ids, p := l.guesser.Guess(m, e.weights)
		q.Hint(e.layer, target, ids, p)
	}
}

// overtaken reports whether one of the events tells that the session executed the
// layer, or left the pass.
func overtaken(later []*event, session int64, layer int) bool {
	for _, e := range later {
		if e.session == session && (e.kind == eventBegin || e.kind == eventRollback || e.kind == eventEnd || (e.kind == eventObserve && e.layer >= layer)) {
			return true
		}
	}
	return false
}
