package sim

import (
	"context"
	"errors"
	"testing"

	"outrider/layout"
	"outrider/router"
	"outrider/trace/synth"
)

// TestWarm: the tokens are the same with and without what was learned before, and so
// is everything that learns nothing; the forecast stalls less.
func TestWarm(t *testing.T) {
	shape := layout.Shape{Layers: 6, Experts: 16, TopK: 2}
	tr := generated(t, synth.Markov, synth.Options{Shape: shape, Tokens: 800, Sequences: 5, Seed: 4, Skew: 1})
	run := func(name string, o Options) Result {
		o.CacheShare, o.MaxTokens = 0.25, 100
		return *simulate(t, tr, name, o)
	}
	for _, name := range []string{"lru", "optimum", "oracle+spec"} {
		if warm, skip := run(name, Options{Warm: 0.7}), run(name, Options{Skip: 0.7}); warm != skip {
			t.Errorf("%s, which learns nothing: got %+v, without learning %+v", name, warm, skip)
		}
	}
	for _, name := range []string{"online+spec", "online+next", "lru+spec", "transition"} {
		warm, skip := run(name, Options{Warm: 0.7}), run(name, Options{Skip: 0.7})
		if warm.Tokens != 100 || skip.Tokens != 100 {
			t.Errorf("%s: got %d and %d tokens, want 100", name, warm.Tokens, skip.Tokens)
		}
		if name == "lru+spec" || name == "online+next" {
			continue // nearly nothing of these is due to what was learned
		}
		if warm.StallOverCompute >= 0.97*skip.StallOverCompute {
			t.Errorf("%s: got stall %.3f with what was learned, %.3f without, want clearly less", name, warm.StallOverCompute, skip.StallOverCompute)
		}
	}
	// 560 tokens of 800; in chunks and batches it must also go through.
	if got := run("online+spec", Options{Warm: 0.7, Batch: 3, Chunk: 8}).Tokens; got != 100 {
		t.Errorf("in a batch: got %d tokens, want 100", got)
	}
}

func TestSkipIsTheTraceWithoutItsBeginning(t *testing.T) {
	shape := layout.Shape{Layers: 3, Experts: 12, TopK: 2}
	tr := synthetic(t, shape, 300, 7)
	rest := spliced(t, tr.Header, part(tr, 120, 300))
	for _, name := range []string{"lru", "online+spec", "optimum", "oracle+spec"} {
		got, want := simulate(t, tr, name, Options{CacheShare: 0.3, Skip: 0.4}), simulate(t, rest, name, Options{CacheShare: 0.3})
		if *got != *want {
			t.Errorf("%s: got %+v, want %+v", name, *got, *want)
		}
	}
}

// ending is a predictor that ends a context when it is told enough.
type ending struct {
	router.Predictor
	left int
	end  func()
}

type endingHistory struct {
	router.History
	e *ending
}

func (e *ending) NewHistory() router.History { return endingHistory{e.Predictor.NewHistory(), e} }

func (h endingHistory) Observe(layer int, choices []router.Choice) {
	if h.e.left--; h.e.left == 0 {
		h.e.end()
	}
	h.History.Observe(layer, choices)
}

func TestLearningEndsWithItsContext(t *testing.T) {
	shape := layout.Shape{Layers: 2, Experts: 8, TopK: 2}
	tr := synthetic(t, shape, 1000, 1)
	inner, err := router.New("recency", shape)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := &ending{Predictor: inner, left: 100, end: cancel}
	_, err = Run(ctx, tr, "online", Options{CacheShare: 0.5, Warm: 0.9, Predictor: p})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want context.Canceled", err)
	}
	if p.left < -2*64*shape.Layers {
		t.Errorf("got %d events after the end, want it to stop within 64 passes", -p.left)
	}
}
