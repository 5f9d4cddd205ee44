package router

import (
	"math"
	"math/rand/v2"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

// TestOutlookOfEvenRates: expert 0 is used in every pass, expert 1 in each with one
// half, expert 2 in each with an eighth, all independently. What is not used next is
// then used after that with expectation d·p ÷ (1 − d·(1−p)), of d, the discount.
func TestOutlookOfEvenRates(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 4, TopK: 2}
	o, err := NewOnline(shape, OnlineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h := o.NewHistory()
	rng := rand.New(rand.NewPCG(3, 4))
	rates := []float64{1, 0.5, 0.125}
	for range 6000 {
		var ids []int32
		for e, p := range rates {
			if rng.Float64() < p {
				ids = append(ids, int32(e))
			}
		}
		h.Begin(trace.Decode, nil)
		h.Observe(0, []Choice{{Experts: ids}})
	}
	p, got := make([]float32, 4), make([]float32, 4)
	h.Score(0, p)
	if !h.(Outlooker).Outlook(0, []float32{0, 0, 0, 0}, got) {
		t.Fatal("got no outlook, want one")
	}
	for e, rate := range rates[1:] {
		const d = OutlookDiscount
		want := d * rate / (1 - d*(1-rate))
		if math.Abs(float64(got[e+1])-want) > 0.15*want+0.02 {
			t.Errorf("expert %d of rate %v: got an outlook of %v behind an execution without it, want %.3f", e+1, rate, got[e+1], want)
		}
	}
	if !h.(Outlooker).Outlook(0, []float32{1, 1, 1, 1}, got) || got[3] != 1 {
		t.Errorf("used next for sure: got %v, want 1", got[3])
	}
}

// TestOutlookRefuses what there is none of.
func TestOutlookRefuses(t *testing.T) {
	o, err := NewOnline(layout.Shape{Layers: 2, Experts: 4, TopK: 1}, OnlineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h := o.NewHistory().(Outlooker)
	four := make([]float32, 4)
	for _, c := range []struct {
		layer     int
		next, dst []float32
	}{{-1, four, four}, {2, four, four}, {0, four[:3], four}, {0, four, four[:3]}, {1, four, four}} {
		if h.Outlook(c.layer, c.next, c.dst) {
			t.Errorf("layer %d, %d and %d experts: got an outlook, want none", c.layer, len(c.next), len(c.dst))
		}
	}
}
