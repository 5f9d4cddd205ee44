package refmodel

import (
	"math"
	"slices"
	"testing"
)

func TestGreedy(t *testing.T) {
	nan := float32(math.NaN())
	tests := []struct {
		logits []float32
		want   int32
	}{
		{[]float32{1, 3, 2}, 1},
		{[]float32{2, 5, 5}, 1},
		{[]float32{-3, nan, -2}, 2},
		{[]float32{0}, 0},
	}
	for _, test := range tests {
		if got := (Greedy{}).Sample(test.logits); got != test.want {
			t.Errorf("%v: got %d, want %d", test.logits, got, test.want)
		}
	}
}

func sampleMany(t *testing.T, o NucleusOptions, n int, logits []float32) []int32 {
	t.Helper()
	sampler, err := NewNucleus(o)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = sampler.Sample(logits)
	}
	return ids
}

func TestNucleusSeeds(t *testing.T) {
	logits := []float32{0, 0.1, 0.2, 0.3, 0.4}
	a := sampleMany(t, NucleusOptions{Seed: 7}, 100, logits)
	if b := sampleMany(t, NucleusOptions{Seed: 7}, 100, logits); !slices.Equal(a, b) {
		t.Errorf("equal seeds: got %v and %v", a, b)
	}
	if b := sampleMany(t, NucleusOptions{Seed: 8}, 100, logits); slices.Equal(a, b) {
		t.Errorf("other seeds: got the same tokens %v", a)
	}
}

func TestNucleusShares(t *testing.T) {
	ln := func(p ...float64) []float32 {
		var out []float32
		for _, v := range p {
			out = append(out, float32(math.Log(v)))
		}
		return out
	}
	tests := []struct {
		name    string
		options NucleusOptions
		want    []float64
	}{
		{"plain", NucleusOptions{}, []float64{0.1, 0.6, 0.3}},
		{"top-p leaves the unlikely out", NucleusOptions{TopP: 0.85}, []float64{0, 2.0 / 3, 1.0 / 3}},
		{"top-p keeps the likeliest", NucleusOptions{TopP: 0.01}, []float64{0, 1, 0}},
		{"cold", NucleusOptions{Temperature: 0.01}, []float64{0, 1, 0}},
		{"hot", NucleusOptions{Temperature: 1e6}, []float64{1.0 / 3, 1.0 / 3, 1.0 / 3}},
	}
	const n = 20000
	for _, test := range tests {
		got := make([]float64, 3)
		for _, id := range sampleMany(t, test.options, n, ln(0.1, 0.6, 0.3)) {
			got[id] += 1.0 / n
		}
		for i := range got {
			if math.Abs(got[i]-test.want[i]) > 0.015 {
				t.Errorf("%s: shares: got %.3f, want %.3f", test.name, got, test.want)
				break
			}
		}
	}
}

func TestNucleusOptions(t *testing.T) {
	for _, o := range []NucleusOptions{{Temperature: -1}, {Temperature: math.NaN()}, {Temperature: math.Inf(1)}, {TopP: 1.1}, {TopP: -0.1}, {TopP: math.NaN()}} {
		if _, err := NewNucleus(o); err == nil {
			t.Errorf("%+v: got no error", o)
		}
	}
}
