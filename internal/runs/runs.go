// Package runs names what is compared when a trace is replayed, in virtual time
// (internal/sim) or with real reads (outrider replay): how experts are kept, and
// what is read ahead. Both make their policies here, so that a run is the same in
// both.
package runs

import (
	"errors"
	"fmt"
	"strings"

	"outrider/layout"
	"outrider/router"
	"outrider/trace"
)

// ErrUnknown: no run has this name.
var ErrUnknown = errors.New("no such run")

// Keep says what ranks the experts that are kept.
type Keep uint8

const (
	Forecast Keep = iota // router.Keeper by a predictor
	LRU
	LFU
	LeastStale
	Optimum // the future: Belady's bound of demand caching
)

// Run is one way to serve a trace.
type Run struct {
	Name      string
	Keep      Keep
	Predictor string // name for router.New or "oracle"; empty if nothing is forecast
	Speculate bool   // read ahead by the predictor
	Next      bool   // the predictor knows the layer that comes next: a bound
}

// bases are the runs without an ending. "decayed" is router's recency predictor:
// how often an expert was used of late.
var bases = []struct {
	name      string
	keep      Keep
	predictor string
}{
	{"lru", LRU, ""},
	{"lfu", LFU, ""},
	{"least-stale", LeastStale, ""},
	{"decayed", Forecast, "recency"},
	{"frequency", Forecast, "frequency"},
	{"transition", Forecast, "transition"},
	{"transition-history", Forecast, "transition-history"},
	{"matrix", Forecast, "matrix"},
	{"online", Forecast, "online"},
}

// defaultPredictor reads ahead for runs that keep without a forecast.
const defaultPredictor = "online"

// Names lists the runs, yardsticks first.
func Names() []string {
	var names []string
	for _, b := range bases {
		names = append(names, b.name, b.name+"+spec")
	}
	return append(names, "online+next", "optimum")
}

// Describe says what the names mean, for help texts.
const Describe = "lru, lfu, least-stale (SpecMD's order), decayed, frequency, transition, transition-history, matrix (MoE-Infinity's method), online: " +
	"what ranks the experts that are kept; each also with +spec, which reads ahead (by its own forecast; after lru, lfu and least-stale by that of online). " +
	"Bounds: optimum (Belady's, demand only), online+next (the next layer's choice is known)"

// Parse finds a run by its name. Besides Names, "oracle" (the future as a
// forecast) and "+next" of any predictor are understood. An unknown name is
// ErrUnknown.
func Parse(name string) (Run, error) {
	base, ending, _ := strings.Cut(name, "+")
	r := Run{Name: name}
	switch {
	case name == "optimum":
		r.Keep = Optimum
		return r, nil
	case base == "oracle":
		r.Predictor = base
	default:
		found := false
		for _, b := range bases {
			if b.name == base {
				r.Keep, r.Predictor, found = b.keep, b.predictor, true
			}
		}
		if !found {
			return r, unknown(name)
		}
	}
	switch {
	case base == name:
	case ending == "spec":
		r.Speculate = true
		if r.Predictor == "" {
			r.Predictor = defaultPredictor
		}
	case ending == "next" && r.Keep == Forecast:
		r.Speculate, r.Next = true, true
	default:
		return r, unknown(name)
	}
	return r, nil
}

func unknown(name string) error {
	return fmt.Errorf("%w: %q: choose from %s", ErrUnknown, name, strings.Join(Names(), ", "))
}

// Bound reports whether the run knows the future.
func (r Run) Bound() bool { return r.Next || r.Keep == Optimum || r.Predictor == "oracle" }

// NewPredictor makes the run's predictor, nil if it forecasts nothing. Those that
// know the future read it from the trace.
func (r Run) NewPredictor(shape layout.Shape, t *trace.Trace) (p router.Predictor, err error) {
	switch r.Predictor {
	case "":
		return nil, nil
	case "oracle":
		p, err = router.NewOracle(shape, t)
	default:
		p, err = router.New(r.Predictor, shape)
	}
	if err == nil && r.Next {
		p, err = router.NewRevealed(p, t)
	}
	return p, err
}

// NewOrder makes the run's order of eviction, nil where a forecast ranks. The
// optimum is made by passes.Schedule, which knows what is to be played.
func (r Run) NewOrder(shape layout.Shape) (router.Order, error) {
	switch r.Keep {
	case LRU:
		return router.NewLRU(shape)
	case LFU:
		return router.NewLFU(shape)
	case LeastStale:
		return router.NewLeastStale(shape)
	}
	return nil, nil
}
