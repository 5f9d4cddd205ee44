package main

import (
	"math"
	"strings"
	"testing"
)

func TestSpread(t *testing.T) {
	for _, tt := range []struct {
		in   []float64
		want spread
		text string
	}{
		{nil, spread{}, ""},
		{[]float64{2}, spread{2, 2, 2, 1}, "2.00"},
		{[]float64{3, 1, 2}, spread{2, 1, 3, 3}, "2.00 (1.00–3.00)"},
		{[]float64{200, 4, 12.3, 10}, spread{11.15, 4, 200, 4}, "11.2 (4.00–200)"},
	} {
		if got := spreadOf(tt.in); got != tt.want || got.String() != tt.text {
			t.Errorf("%v: got %+v %q, want %+v %q", tt.in, got, got, tt.want, tt.text)
		}
	}
}

func TestBound(t *testing.T) {
	for _, tt := range []struct{ rate, bytes, raw, want float64 }{
		{100, 1e6, 1e9, 0.01}, // compute
		{100, 50e6, 1e9, 0.05},
		{100, 0, 1e9, 0.01},
		{0, 50e6, 1e9, 0.05},
		{100, 50e6, 0, 0.01},
		{0, 0, 0, 0},
	} {
		if got := bound(tt.rate, tt.bytes, tt.raw); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("%+v: got %v", tt, got)
		}
	}
}

// decoded is a run at that speed.
func decoded(arm, budget string, round int, rate float64) entry {
	r := &result{BudgetBytes: 25e6, PeakBytes: 80e6, Forced: &forced{Digest: "d"}}
	r.Decode.TokensPerSecond, r.Prompt.TokensPerSecond = rate, 10*rate
	if streams(arm) {
		r.Decode.BytesPerToken, r.Decode.Hits = 20e6, 0.5
	}
	return entry{step: step{Purpose: speed, Arm: arm, Budget: budget, Round: round}, Result: r}
}

func rawSlice(rate float64) entry {
	return entry{step: step{Purpose: speed}, Raw: &rawRate{BytesPerSecond: rate, Direct: true}}
}

// measured is three rounds, the third of which is slower in all.
func measured() *findings {
	f := &findings{Rounds: 3, Sizes: model{DenseBytes: 10e6, ExpertBytes: 100e6}}
	for round, slow := range []float64{1, 1, 2} {
		f.Runs = append(f.Runs, decoded(resident, "25%", round, 100/slow), decoded(mmap, "25%", round, 2/slow), rawSlice(1e9/slow),
			decoded(demand, "25%", round, 20/slow), rawSlice(2e9/slow), decoded(outrider, "25%", round, 40/slow), rawSlice(4e9/slow))
	}
	last := decoded(resident, "25%", 3, 90)
	f.Runs = append(f.Runs, last)
	return f
}

func TestRowsCompareWithinARound(t *testing.T) {
	f := measured()
	r := f.rowOf(speed, "25%", outrider)
	if r.Rate != (spread{40, 20, 40, 3}) {
		t.Errorf("got %+v tokens/s", r.Rate)
	}
	// A token takes 25 ms; 20 MB at the mean of 2 and 4 GB/s take 6.7 ms, compute 10.
	for name, got := range map[string][2]float64{
		"of resident": {r.OfResident.Least, 0.4}, "of mmap": {r.OfMmap.Most, 20}, "of demand": {r.OfDemand.Median, 2}, "of bound": {r.OfBound.Median, 2.5},
		"hits": {r.Hits.Median, 0.5}, "bytes": {r.Bytes.Median, 20e6}, "peak": {float64(r.PeakBytes), 80e6}, "allowed": {float64(r.PeakAllowed), 99e6},
	} {
		if math.Abs(got[0]-got[1]) > 1e-9*got[1] {
			t.Errorf("%s: got %v, want %v", name, got[0], got[1])
		}
	}
	// 50 ms against 20 MB at 1.5 GB/s: 13 ms.
	if r := f.rowOf(speed, "25%", demand); math.Abs(r.OfBound.Median-3.75) > 1e-9 || r.OfDemand.N != 0 || r.OfMmap.N != 3 {
		t.Errorf("demand: got %+v", r)
	}
	if r := f.rowOf(speed, "25%", resident); r.Rate.N != 3 || r.OfResident.N+r.OfMmap.N+r.OfBound.N != 0 {
		t.Errorf("resident: got %+v, want three rounds without the repeated one, and no ratios", r)
	}
	if r := f.rowOf(speed, "50%", outrider); r.Rate.N != 0 {
		t.Errorf("no such budget: got %+v", r)
	}
	if got := f.drift(); math.Abs(got-0.9) > 1e-9 {
		t.Errorf("got drift %v, want 0.9", got)
	}
	if s, direct := f.raw(); s.N != 9 || !direct || s.Most != 4e9 {
		t.Errorf("got raw %+v %v", s, direct)
	}
}

func TestFailedRunsAreLeftOut(t *testing.T) {
	f := measured()
	f.Runs[0].Result, f.Runs[0].Error = nil, "no memory"
	r := f.rowOf(speed, "25%", outrider)
	if r.Rate.N != 3 || r.OfResident.N != 2 || r.OfBound.N != 3 {
		t.Errorf("got %+v, want two rounds that can be compared", r)
	}
	if got := (&findings{}).drift(); got != 0 {
		t.Errorf("nothing measured: got drift %v", got)
	}
}

func greedy(arm, budget string, prompt int, ids ...int32) entry {
	return entry{step: step{Purpose: equal, Arm: arm, Budget: budget, Prompt: prompt}, Result: &result{Texts: []text{{Tokens: ids}}}}
}

func TestEquality(t *testing.T) {
	f := measured()
	f.Runs = append(f.Runs, greedy(resident, "", 0, 1, 2, 3), greedy(mmap, "", 0, 1, 2, 3), greedy(outrider, floorName, 0, 1, 2, 3))
	if got := f.equality(); got.Met != yes || got.Got != "2 of 2 texts; 6 of 6 runs of given text" {
		t.Errorf("got %+v", got)
	}
	for name, other := range map[string]entry{
		"equal, demand at 25%, prompt 1: token 2 is 7, want 2": greedy(demand, "25%", 0, 1, 7, 3),
		"equal, demand at 25%, prompt 1: 2 tokens, want 3":     greedy(demand, "25%", 0, 1, 2),
		"equal, demand at 25%, prompt 2: 1 tokens, want 0":     greedy(demand, "25%", 1, 1),
		"equal, mmap, prompt 1: 0 tokens, want 3":              {step: step{Purpose: equal, Arm: mmap}, Error: "killed"},
	} {
		g := *f
		g.Runs = append(g.Runs[:len(g.Runs):len(g.Runs)], other)
		if got := g.equality(); got.Met != no || !strings.Contains(got.Got, name) {
			t.Errorf("got %+v, want no and %q", got, name)
		}
	}
	f.Runs[5].Result.Forced.Digest = "other"
	if got := f.equality(); got.Met != no || !strings.Contains(got.Got, "5 of 6 runs of given text, not speed, outrider at 25%, round 1") {
		t.Errorf("another digest: got %+v", got)
	}
	if got := measured().equality(); got.Met != notMeasured || got.Got != "" {
		t.Errorf("no texts: got %+v", got)
	}
}

func TestMemory(t *testing.T) {
	f := measured()
	if got := f.memory(); got.Met != yes || !strings.HasPrefix(got.Got, "at most 45.0 MB more") {
		t.Errorf("got %+v", got)
	}
	f.Runs[3].Result.PeakBytes = 99e6 + 1e5
	if got := f.memory(); got.Met != no || !strings.Contains(got.Got, "64.1 MB") || !strings.Contains(got.Got, "demand at 25%, round 1") {
		t.Errorf("got %+v", got)
	}
	if got := (&findings{}).memory(); got.Met != notMeasured {
		t.Errorf("nothing measured: got %+v", got)
	}
}

func TestDemands(t *testing.T) {
	f := measured()
	s := summarise(f, budgets(t, "25%"))
	want := []string{notMeasured, yes, yes, no, notMeasured, notMeasured, yes} // texts, mmap, demand, bound, warm, prefill, memory
	if len(s.Demands) != len(want) {
		t.Fatalf("got %+v", s.Demands)
	}
	for i, d := range s.Demands {
		if d.Met != want[i] {
			t.Errorf("got %+v, want %s", d, want[i])
		}
	}
	if d := s.Demands[1]; d.Got != "20.0 (20.0–20.0)" || !strings.HasSuffix(d.Wanted, "≥ 8") {
		t.Errorf("got %+v", d)
	}
}
