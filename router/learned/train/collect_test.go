package train

import (
	"math/rand/v2"
	"slices"
	"testing"

	"outrider/router/learned"
	"outrider/trace"
)

// fitOf is a training that has its examples and a graph, but has not begun.
func fitOf(t *testing.T, tr *trace.Trace, o Options) *fit {
	t.Helper()
	o = o.withDefaults()
	random := rand.New(rand.NewPCG(1, 1))
	s, err := newSplit([]*trace.Trace{tr}, o.HoldOut, random)
	if err != nil {
		t.Fatal(err)
	}
	f := &fit{dims: learned.Dims{Shape: tr.Header.Shape, Hidden: o.Hidden, Embedding: o.Embedding}, options: o, random: random, report: &Report{}}
	if f.train, f.held, err = collect(t.Context(), s, tr.Header.Shape, o, random); err != nil {
		t.Fatal(err)
	}
	f.spread = f.train.spread()
	if f.network, err = newNetwork(f.dims, o.Batch); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.network.close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// TestSplit: every token is on one side, and no sequence on both.
func TestSplit(t *testing.T) {
	traces := []*trace.Trace{generated(t, 200, 5, 1), generated(t, 200, 5, 2)}
	s, err := newSplit(traces, 0.3, rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if s.byTime || s.trainSequences != 7 || s.heldSequences != 3 || s.trainTokens+s.heldTokens != 400 {
		t.Errorf("got %d and %d sequences of %d and %d tokens, want 7 and 3 of 400", s.trainSequences, s.heldSequences, s.trainTokens, s.heldTokens)
	}
	for i, tr := range traces {
		side := map[int64]int{}
		for k, p := range []part{s.train[i], s.held[i]} {
			if p.trace != tr || !slices.IsSorted(p.tokens) {
				t.Fatalf("trace %d: got its tokens out of order", i)
			}
			for _, token := range p.tokens {
				if got, ok := side[tr.Seqs[token]]; ok && got != k {
					t.Fatalf("trace %d: sequence %d is on both sides", i, tr.Seqs[token])
				}
				side[tr.Seqs[token]] = k
			}
		}
		if len(s.train[i].tokens)+len(s.held[i].tokens) != tr.Len() {
			t.Errorf("trace %d: got %d and %d tokens of %d", i, len(s.train[i].tokens), len(s.held[i].tokens), tr.Len())
		}
	}
}

// TestSplitByTime: of a single sequence the end is held out, and the report says so.
func TestSplitByTime(t *testing.T) {
	tr := generated(t, 200, 1, 1)
	s, err := newSplit([]*trace.Trace{tr}, 0.25, rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if !s.byTime || s.trainTokens != 150 || s.held[0].tokens[0] != 150 {
		t.Errorf("got %d tokens to train on, held out from %v, want 150", s.trainTokens, s.held[0].tokens[:1])
	}
	if _, r := trained(t, Options{Epochs: 1}, tr); r.Split != "time" {
		t.Errorf("report: got split %q, want time", r.Split)
	}
}

// TestExamples: each says what was known then, and what the layer used.
func TestExamples(t *testing.T) {
	tr := generated(t, 300, 3, 1)
	f := fitOf(t, tr, Options{})
	count := map[learned.Horizon]int{}
	for i := range f.train.len() {
		e := f.train.at(i)
		count[e.view.Horizon]++
		if len(e.used) != small.TopK || len(e.columns) != f.train.width {
			t.Fatalf("example %d: got %v of %d columns", i, e.used, len(e.columns))
		}
		if near := e.view.Horizon == learned.Near; near != (len(e.view.Before) > 0) {
			t.Fatalf("example %d: got %v with a layer before of %v", i, e.view.Horizon, e.view.Before)
		}
		if e.layer == 0 && e.view.Horizon == learned.Near {
			t.Fatalf("example %d: layer 0 has no layer before", i)
		}
	}
	for h := range learned.Horizons {
		if n := count[learned.Horizon(h)]; n < f.train.len()/8 {
			t.Errorf("%v: got %d of %d examples, want a fair part", learned.Horizon(h), n, f.train.len())
		}
	}
}

func TestMemoryBound(t *testing.T) {
	tr := generated(t, 400, 4, 1)
	size := exampleBytes(small)
	f := fitOf(t, tr, Options{MemoryBytes: 100 * size})
	if f.train.len() != 80 || f.held.warm.len() != 10 || f.held.cold.len() != 10 {
		t.Errorf("got %d, %d and %d examples, want 80, 10 and 10", f.train.len(), f.held.warm.len(), f.held.cold.len())
	}
	if cap(f.train.columns)*4 > int(80*size) {
		t.Errorf("got room for %d numbers, want what was allowed", cap(f.train.columns))
	}
	first, last := false, false
	for _, l := range f.train.layers {
		first, last = first || l == 0, last || int(l) == small.Layers-1
	}
	if !first || !last {
		t.Error("got no example of the first or last layer, want all layers alike")
	}
	trained(t, Options{MemoryBytes: 1, Epochs: 1}, tr) // one example of each kind
}

func TestSampler(t *testing.T) {
	for need := range 11 {
		s := sampler{random: rand.New(rand.NewPCG(uint64(need), 1)), need: need, left: 10}
		got := 0
		for range 12 {
			if s.take() {
				got++
			}
		}
		if got != need {
			t.Errorf("got %d of 10, want %d", got, need)
		}
	}
}

func TestBirths(t *testing.T) {
	for tokens, want := range map[int][]int{0: {0}, 255: {0}, 256: {0, 128}, 1100: {0, 137, 275, 550}} {
		if got := births(tokens); !slices.Equal(got, want) {
			t.Errorf("%d tokens: got %v, want %v", tokens, got, want)
		}
	}
}
