package sim

import (
	"math"
	"slices"
	"testing"
	"time"

	"outrider/layout"
	"outrider/trace"
)

// handmade is a trace of the given rows: tokens of sequences, layers, ids.
func handmade(t *testing.T, shape layout.Shape, seqs []int64, phase trace.Phase, rows ...[]int32) *trace.Trace {
	t.Helper()
	tr, err := trace.NewTrace(trace.Header{Model: "by hand", Shape: shape, Phase: phase})
	if err != nil {
		t.Fatal(err)
	}
	for i, ids := range rows {
		if err := tr.Append(&trace.Activation{Seq: seqs[i], Pos: int64(i), Token: -1, Experts: ids}); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

// Two layers of two experts; every token needs others, so all is read.
func allMisses(t *testing.T) *trace.Trace {
	shape := layout.Shape{Layers: 2, Experts: 8, TopK: 2}
	return handmade(t, shape, []int64{0, 0}, trace.Decode, []int32{0, 1, 2, 3}, []int32{4, 5, 6, 7})
}

func TestDrives(t *testing.T) {
	const mib = 1 << 20
	fast := Drive{BytesPerSecond: 1e9}
	for _, c := range []struct {
		name   string
		drives []Drive
		record int64
		ratio  float64
		want   float64 // stall over compute
	}{
		// A layer's two experts take ratio, whatever the drive.
		{"none", nil, 0, 2, 2},
		{"one", []Drive{fast}, mib, 2, 2},
		{"one, with latency", []Drive{{BytesPerSecond: 1e9, Latency: time.Second}}, mib, 2, 2},
		// Cut in two, an expert alone takes ratio ÷ top-k by definition, on both drives at once.
		{"two, cut", []Drive{fast, fast}, mib, 2, 2},
		// Whole ones lie on both in turn: the layer's two are read at once.
		{"two, whole", []Drive{fast, fast}, 1 << 10, 2, 1},
		// The fast one has three of four experts, so one layer of two waits for it twice.
		{"unequal, whole", []Drive{{BytesPerSecond: 3e9}, fast}, 1 << 10, 2, math.NaN()},
	} {
		r := simulate(t, allMisses(t), "lru", Options{CacheExperts: 4, Ratio: c.ratio, Drives: c.drives, RecordBytes: c.record})
		if r.Hits != 0 || r.DemandReadsPerToken != 4 {
			t.Errorf("%s: got %v hits and %v demand reads a token, want none and 4", c.name, r.Hits, r.DemandReadsPerToken)
		}
		if math.IsNaN(c.want) {
			if !(r.StallOverCompute > 0.5 && r.StallOverCompute < 2.5) {
				t.Errorf("%s: got stall %v, want it within sense", c.name, r.StallOverCompute)
			}
			continue
		}
		if math.Abs(r.StallOverCompute-c.want) > 1e-9 {
			t.Errorf("%s: got stall %v, want %v", c.name, r.StallOverCompute, c.want)
		}
	}
}

// TestMoreDrivesStallLess compares drives at the same compute time: the ratio is
// by the time of one read, which two drives halve.
func TestMoreDrivesStallLess(t *testing.T) {
	tr := synthetic(t, layout.Shape{Layers: 4, Experts: 16, TopK: 2}, 300, 3)
	for _, run := range []string{"lru", "online", "online+spec", "optimum"} {
		one := simulate(t, tr, run, Options{CacheShare: 0.3, Ratio: 2, Drives: []Drive{{BytesPerSecond: 1e9}}, RecordBytes: 4 << 20})
		two := simulate(t, tr, run, Options{CacheShare: 0.3, Ratio: 1, Drives: []Drive{{BytesPerSecond: 1e9}, {BytesPerSecond: 1e9}}, RecordBytes: 4 << 20})
		if got, most := two.StallOverCompute, 0.6*one.StallOverCompute; got > most {
			t.Errorf("%s: got stall %.3f with two drives and %.3f with one, want at most 0.6 of it", run, got, one.StallOverCompute)
		}
	}
}

func TestCacheInBytes(t *testing.T) {
	tr := allMisses(t)
	r := simulate(t, tr, "lru", Options{CacheBytes: 5 << 20, RecordBytes: 1 << 20})
	if r.CacheExperts != 5 || r.CacheShare != 5.0/16 {
		t.Errorf("got room for %d experts, a share of %v, want 5 and 5/16", r.CacheExperts, r.CacheShare)
	}
}

func TestBatchTakesTheUnion(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 8, TopK: 2}
	tr := handmade(t, shape, []int64{0, 1, 0, 1, 2}, trace.Decode,
		[]int32{0, 1}, []int32{1, 2}, []int32{0, 1}, []int32{1, 2}, []int32{3, 4})
	r := simulate(t, tr, "lru", Options{CacheExperts: 4, Batch: 2})
	// Passes: {0,1,2}, the same again, then sequence 2 alone.
	if r.Passes != 3 || r.Tokens != 5 {
		t.Errorf("got %d passes of %d tokens, want 3 of 5", r.Passes, r.Tokens)
	}
	if want := 3.0 / 8; math.Abs(r.Hits-want) > 1e-12 {
		t.Errorf("got hits %v, want %v: 3 of 8 experts, each once a pass", r.Hits, want)
	}
	if want := 5.0 / 5; r.DemandReadsPerToken != want {
		t.Errorf("got %v demand reads a token, want %v", r.DemandReadsPerToken, want)
	}
}

func TestChunksOfPrompts(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 8, TopK: 2}
	rows := [][]int32{{0, 1}, {2, 3}, {4, 5}, {0, 1}}
	seqs := []int64{0, 0, 0, 0}
	prefill := handmade(t, shape, seqs, trace.Prefill, rows...)
	for _, c := range []struct{ chunk, capacity, passes int }{
		{1, 2, 4}, {2, 4, 2}, {4, 6, 1},
		{4, 2, 1}, // three waves of two
		{100, 3, 1},
	} {
		r := simulate(t, prefill, "lru", Options{CacheExperts: c.capacity, Chunk: c.chunk})
		if r.Passes != c.passes {
			t.Errorf("chunk %d: got %d passes, want %d", c.chunk, r.Passes, c.passes)
		}
		if c.chunk >= 4 && r.DemandReadsPerToken != 6.0/4 {
			t.Errorf("chunk %d, room for %d: got %v reads a token, want each of 6 experts once", c.chunk, c.capacity, r.DemandReadsPerToken)
		}
	}
	decode := handmade(t, shape, seqs, trace.Decode, rows...)
	if r := simulate(t, decode, "lru", Options{CacheExperts: 4, Chunk: 4}); r.Passes != 4 {
		t.Errorf("decoded tokens in chunks: got %d passes, want 4", r.Passes)
	}
	unknown := handmade(t, shape, seqs, trace.PhaseUnknown, rows...)
	if r := simulate(t, unknown, "lru", Options{CacheExperts: 4, Chunk: 4}); r.Passes != 4 {
		t.Errorf("tokens of unknown phase in chunks: got %d passes, want 4", r.Passes)
	}
}

// Every run must serve batches, chunks and waves, and be deterministic.
func TestAllRunsInBatches(t *testing.T) {
	tr := synthetic(t, layout.Shape{Layers: 3, Experts: 12, TopK: 2}, 200, 5)
	for _, run := range []string{"lru", "lfu", "least-stale+spec", "online+spec", "online+next", "matrix+spec", "optimum"} {
		for _, o := range []Options{{CacheExperts: 20, Batch: 3}, {CacheExperts: 3, Batch: 4}, {CacheExperts: 9, Batch: 2, Chunk: 5}} {
			a, b := simulate(t, tr, run, o), simulate(t, tr, run, o)
			if *a != *b {
				t.Errorf("%s %+v: got %+v, then %+v", run, o, *a, *b)
			}
			if a.Tokens != 200 || a.Passes >= 200 {
				t.Errorf("%s: got %d tokens in %d passes, want 200 in fewer", run, a.Tokens, a.Passes)
			}
		}
	}
}

func TestProgressReachesNearlyTheEnd(t *testing.T) {
	tr := synthetic(t, layout.Shape{Layers: 2, Experts: 8, TopK: 2}, 300, 1)
	var seen []int
	simulate(t, tr, "lru", Options{CacheShare: 0.5, Progress: func(n int) { seen = append(seen, n) }})
	if len(seen) < 4 || !slices.IsSorted(seen) || seen[len(seen)-1] < 200 {
		t.Errorf("got progress %v, want several steps up to nearly 300", seen)
	}
}
