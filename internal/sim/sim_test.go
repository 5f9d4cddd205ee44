package sim

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"outrider/internal/runs"
	"outrider/layout"
	"outrider/trace"
)

// synthetic is a trace with structure: each token follows the one before in
// half of its experts, and its layers follow each other.
func synthetic(t testing.TB, shape layout.Shape, tokens int, seed uint64) *trace.Trace {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 2))
	tr, err := trace.NewTrace(trace.Header{Model: "synthetic", Shape: shape, Phase: trace.Decode, Tokens: true})
	if err != nil {
		t.Fatal(err)
	}
	var last []int32
	for i := range tokens {
		token := rng.Int32N(20)
		var ids []int32
		for l := range shape.Layers {
			row := make([]int32, 0, shape.TopK)
			for k := range shape.TopK {
				e := (token + int32(7*k+3*l)) % int32(shape.Experts)
				if last != nil && rng.IntN(2) == 0 {
					e = last[l*shape.TopK+k]
				}
				for slices.Contains(row, e) {
					e = (e + 1) % int32(shape.Experts)
				}
				row = append(row, e)
			}
			ids = append(ids, row...)
		}
		last = ids
		a := trace.Activation{Seq: int64(i / 50), Pos: int64(i % 50), Phase: trace.Decode, Token: token, Experts: ids}
		if err := tr.Append(&a); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

// bruteLRU replays a layer at a time: those of the layer stay, the longest
// unused go, of those used at once the one with the highest index.
func bruteLRU(tr *trace.Trace, capacity int) (hits int) {
	shape := tr.Header.Shape
	last := map[layout.ExpertID]int{}
	now := 0
	for i := range tr.Len() {
		for l := range shape.Layers {
			used, _ := tr.Row(i, l)
			now++
			for _, x := range used {
				if _, ok := last[layout.ExpertID{Layer: int32(l), Index: x}]; ok {
					hits++
				}
			}
			for _, x := range used {
				id := layout.ExpertID{Layer: int32(l), Index: x}
				if _, ok := last[id]; !ok && len(last) == capacity {
					evictFirst(last, l, used)
				}
				last[id] = now*1000 - int(x)
			}
		}
	}
	return hits
}

func evictFirst(last map[layout.ExpertID]int, layer int, used []int32) {
	var victim layout.ExpertID
	oldest := math.MaxInt
	for id, at := range last {
		if int(id.Layer) == layer && slices.Contains(used, id.Index) {
			continue
		}
		if at < oldest {
			victim, oldest = id, at
		}
	}
	delete(last, victim)
}

// bruteBest is the most hits that any order of eviction can have, by trying
// all: for very short sequences only.
func bruteBest(seq []int, capacity int, held uint64, memo map[[2]uint64]int) int {
	if len(seq) == 0 {
		return 0
	}
	key := [2]uint64{uint64(len(seq)), held}
	if n, ok := memo[key]; ok {
		return n
	}
	bit := uint64(1) << seq[0]
	best := 0
	switch {
	case held&bit != 0:
		best = 1 + bruteBest(seq[1:], capacity, held, memo)
	case ones(held) < capacity:
		best = bruteBest(seq[1:], capacity, held|bit, memo)
	default:
		for v := range 64 {
			if held&(1<<v) != 0 {
				best = max(best, bruteBest(seq[1:], capacity, held&^(1<<v)|bit, memo))
			}
		}
	}
	memo[key] = best
	return best
}

func ones(x uint64) (n int) {
	for ; x != 0; x &= x - 1 {
		n++
	}
	return n
}

func TestLRUAgainstBruteForce(t *testing.T) {
	shape := layout.Shape{Layers: 3, Experts: 12, TopK: 3}
	for seed := range uint64(5) {
		tr := synthetic(t, shape, 120, seed)
		for _, capacity := range []int{3, 4, 9, 20, 36} {
			got := simulate(t, tr, "lru", Options{CacheExperts: capacity}).Hits
			want := float64(bruteLRU(tr, capacity)) / float64(120*9)
			if math.Abs(got-want) > 1e-12 {
				t.Errorf("seed %d, %d experts: got %v hits, want %v", seed, capacity, got, want)
			}
		}
	}
}

func TestOptimumAgainstBruteForce(t *testing.T) {
	shape := layout.Shape{Layers: 2, Experts: 6, TopK: 2}
	for seed := range uint64(20) {
		tr := synthetic(t, shape, 9, seed)
		var seq []int
		for i := range tr.Len() {
			for l := range shape.Layers {
				used, _ := tr.Row(i, l)
				for _, x := range used {
					seq = append(seq, l*shape.Experts+int(x))
				}
			}
		}
		for _, capacity := range []int{2, 3, 5} {
			got := simulate(t, tr, "optimum", Options{CacheExperts: capacity}).Hits
			want := float64(bruteBest(seq, capacity, 0, map[[2]uint64]int{})) / float64(len(seq))
			if math.Abs(got-want) > 1e-12 {
				t.Errorf("seed %d, %d experts: got %v hits, want %v", seed, capacity, got, want)
			}
		}
	}
}

// TestTiming checks one hand-computed run: two layers of one expert each, two
// tokens, room for one expert, so that every layer misses.
func TestTiming(t *testing.T) {
	shape := layout.Shape{Layers: 2, Experts: 8, TopK: 1}
	tr, err := trace.NewTrace(trace.Header{Model: "two", Shape: shape})
	if err != nil {
		t.Fatal(err)
	}
	for _, ids := range [][]int32{{0, 1}, {0, 1}} {
		if err := tr.Append(&trace.Activation{Token: -1, Experts: ids}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		run            string
		experts        int
		ratio          float64
		stall, hits    float64
		demands, ahead float64
	}{
		{"lru", 1, 2, 2, 0, 2, 0},                   // every layer waits for its whole read
		{"lru", 2, 2, 1, 0.5, 1, 0},                 // only the first token misses
		{"optimum", 1, 2, 2, 0, 2, 0},               // nothing to gain
		{"online+next", 4, 1, 0.25, 0.75, 0.5, 0.5}, // the second layer is read during the first, the first waits
		{"online+next", 4, 2, 0.75, 0.5, 0.5, 0.5},  // that read takes two units and has one: half of it is seen
	} {
		r := simulate(t, tr, c.run, Options{CacheExperts: c.experts, Ratio: c.ratio})
		if r.StallOverCompute != c.stall || r.Hits != c.hits || r.DemandReadsPerToken != c.demands || r.SpeculativeReadsPerToken != c.ahead {
			t.Errorf("%s, room for %d, ratio %v: got stall %v hits %v demand %v ahead %v, want %v %v %v %v", c.run, c.experts, c.ratio,
				r.StallOverCompute, r.Hits, r.DemandReadsPerToken, r.SpeculativeReadsPerToken, c.stall, c.hits, c.demands, c.ahead)
		}
	}
}

func TestAllRuns(t *testing.T) {
	shape := layout.Shape{Layers: 4, Experts: 16, TopK: 2}
	tr := synthetic(t, shape, 300, 1)
	by := map[string]*Result{}
	for _, run := range append(runs.Names(), "oracle", "oracle+spec") {
		r := simulate(t, tr, run, Options{CacheShare: 0.3})
		if again := simulate(t, tr, run, Options{CacheShare: 0.3}); *again != *r {
			t.Errorf("%s, second time: got %+v, want %+v", run, *again, *r)
		}
		if r.Run != run || !(r.Hits >= 0 && r.Hits <= 1) || r.StallOverCompute < 0 {
			t.Errorf("%s: got %+v, want a sensible result", run, *r)
		}
		if !strings.Contains(run, "+") && r.SpeculativeReadsPerToken != 0 {
			t.Errorf("%s: got %v speculative reads a token, want none", run, r.SpeculativeReadsPerToken)
		}
		by[run] = r
	}
	for _, run := range []string{"lru", "lfu", "least-stale", "decayed", "frequency", "transition", "matrix", "online"} {
		if by[run].Hits > by["optimum"].Hits {
			t.Errorf("%s: got %.3f hits, want at most the optimum's %.3f", run, by[run].Hits, by["optimum"].Hits)
		}
	}
	if got, want := by["online+next"].StallOverCompute, by["online+spec"].StallOverCompute; got > want {
		t.Errorf("stall with the next layer known: got %.3f, want at most %.3f", got, want)
	}
}

func TestBadRuns(t *testing.T) {
	tr := synthetic(t, layout.Shape{Layers: 2, Experts: 8, TopK: 2}, 10, 1)
	for _, c := range []struct {
		run  string
		o    Options
		want string
	}{
		{"fifo", Options{CacheShare: 0.5}, `"fifo"`},
		{"lru+next", Options{CacheShare: 0.5}, `"lru+next"`},
		{"optimum+spec", Options{CacheShare: 0.5}, `"optimum+spec"`},
		{"online+luck", Options{CacheShare: 0.5}, "online+spec"},
		{"lru", Options{}, "cache share"},
		{"lru", Options{CacheShare: 1.5}, "cache share"},
		{"lru", Options{CacheShare: math.NaN()}, "cache share"},
		{"lru", Options{CacheShare: 0.01}, "raise the cache size"},
		{"lru", Options{CacheShare: 0.5, Ratio: -1}, "ratio"},
		{"lru", Options{CacheShare: 0.5, Attention: 2}, "attention"},
		{"lru", Options{CacheShare: 0.5, Horizon: -1}, "horizon"},
		{"lru", Options{CacheShare: 0.5, Margin: -1}, "margin"},
		{"lru", Options{CacheShare: 0.5, Warm: 1}, "warm"},
		{"lru", Options{CacheShare: 0.5, Skip: -0.1}, "skip"},
		{"lru", Options{CacheShare: 0.5, Warm: math.NaN()}, "warm"},
		{"lru", Options{CacheShare: 0.5, Warm: 0.1, Skip: 0.1}, "both"},
		{"lru", Options{CacheShare: 0.5, Skip: 0.99}, "no tokens"},
	} {
		_, err := Run(context.Background(), tr, c.run, c.o)
		if !errors.Is(err, ErrOption) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %+v: got %v, want ErrOption that names %s", c.run, c.o, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, tr, "lru", Options{CacheShare: 0.5}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want context.Canceled", err)
	}
}

func TestResultJSON(t *testing.T) {
	data, err := json.Marshal(Result{SpeculationOffShare: 1})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	want := []string{"run", "cache_share", "ratio", "hits", "demand_reads_per_token", "speculative_reads_per_token", "useful",
		"late", "wasted", "displaced", "stall_over_compute", "layer_complete_rate", "recall_at_k",
		"cache_experts", "tokens", "passes", "speculation_off_share"}
	for _, tag := range want {
		if _, ok := got[tag]; !ok {
			t.Errorf("tags: got no %q in %s", tag, data)
		}
	}
	if len(got) != len(want) {
		t.Errorf("tags: got %d, want %d", len(got), len(want))
	}
}

// BenchmarkRun reports the accesses that one second simulates.
func BenchmarkRun(b *testing.B) {
	shape := layout.Shape{Layers: 24, Experts: 64, TopK: 6}
	tr := synthetic(b, shape, 500, 1)
	for _, run := range []string{"lru", "optimum", "online+spec"} {
		b.Run(run, func(b *testing.B) {
			for b.Loop() {
				simulate(b, tr, run, Options{CacheShare: 0.25})
			}
			b.ReportMetric(float64(b.N)*float64(len(tr.Experts))/b.Elapsed().Seconds(), "accesses/s")
		})
	}
}
