package router

import (
	"math"
	"slices"
	"testing"

	"outrider/layout"
)

// waits is what Keeper.Expect is for a distance, and an expert that is next used with
// probability p and at a rate after that.
func waits(distance, layers, p, rate float64) float64 {
	return distanceWeight*distance + layers*(1-p)/rate
}

func TestKeeper(t *testing.T) {
	shape := layout.Shape{Layers: 4, Experts: 2, TopK: 1}
	k, err := NewKeeper(shape)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := k.Expect(2, k.Keys(2)[0]), waits(3, 4, 0.5, 0.5); math.Abs(got-want) > 1e-6 {
		t.Errorf("before the first layer: got %v, want %v", got, want)
	}
	k.Enter(1)
	for layer, want := range []int{3, 4, 1, 2} {
		if got := k.Distance(layer); got != want {
			t.Errorf("distance of layer %d from 1: got %d, want %d", layer, got, want)
		}
	}
	k.Enter(1, 3) // two sequences: the nearer counts
	for layer, want := range []int{1, 2, 1, 2} {
		if got := k.Distance(layer); got != want {
			t.Errorf("distance of layer %d from 1 and 3: got %d, want %d", layer, got, want)
		}
	}
	k.Enter(1)
	for range 64 { // the rate follows
		k.Set(2, []float32{0.25, 0.75})
	}
	for e, p := range []float32{0.25, 0.75} {
		if got, want := k.Expect(2, k.Keys(2)[e]), waits(1, 4, float64(p), float64(p)); math.Abs(got-want) > 1e-3 {
			t.Errorf("steady p %v: got %v, want %v", p, got, want)
		}
	}
	k.SetNext(2, []float32{0.9, 0})
	if got, want := k.Expect(2, k.Keys(2)[0]), waits(1, 4, 0.9, 0.25); math.Abs(got-want) > 1e-3 {
		t.Errorf("next 0.9 at rate 0.25: got %v, want %v", got, want)
	}
	// Not in the next execution, but 0.75 in those after: later than now, not never.
	if got, want := k.Expect(2, k.Keys(2)[1]), waits(1, 4, 0, 0.75); math.Abs(got-want) > 1e-3 {
		t.Errorf("next 0 at rate 0.75: got %v, want %v", got, want)
	}
}

// TestKeeperOutlook: an outlook of the discount to the n is a use n passes after the
// layer's next execution.
func TestKeeperOutlook(t *testing.T) {
	k, err := NewKeeper(layout.Shape{Layers: 4, Experts: 4, TopK: 1})
	if err != nil {
		t.Fatal(err)
	}
	k.Enter(1)
	k.SetOutlook(2, []float32{1, OutlookDiscount, OutlookDiscount * OutlookDiscount, float32(math.NaN())})
	for e, passes := range []float64{0, 1, 2} {
		if got, want := k.Expect(2, k.Keys(2)[e]), distanceWeight*1+4*passes; math.Abs(got-want) > 0.01 {
			t.Errorf("%v passes later: got %v, want %v", passes, got, want)
		}
	}
	if got := k.Keys(2)[3]; !(got > k.Keys(2)[2]) || math.IsInf(got, 0) {
		t.Errorf("no number: got key %v, want one that goes first", got)
	}
}

func TestJoin(t *testing.T) {
	p := []float32{0, 0.5, 1}
	Join(p, []float32{0.5, 0.5, 0})
	if want := []float32{0.5, 0.75, 1}; !slices.Equal(p, want) {
		t.Errorf("got %v, want %v", p, want)
	}
}

func TestFastMath(t *testing.T) {
	for x := float32(1e-6); x < 1e6; x *= 1.003 {
		if got, want := float64(fastLog(x)), math.Log(float64(x)); math.Abs(got-want) > 2e-4 {
			t.Fatalf("log(%v): got %v, want %v", x, got, want)
		}
	}
	for x := float32(-79); x < 79; x += 0.013 {
		if got, want := float64(fastExp(x)), math.Exp(float64(x)); math.Abs(got/want-1) > 5e-4 {
			t.Fatalf("exp(%v): got %v, want %v", x, got, want)
		}
	}
	for _, x := range []float32{-1e9, 1e9, float32(math.Inf(1)), float32(math.Inf(-1))} {
		if got := sigmoid(x); !(got >= 0 && got <= 1) {
			t.Errorf("sigmoid(%v): got %v, want 0 to 1", x, got)
		}
	}
}

func TestFound(t *testing.T) {
	p := []float32{0.1, 0.9, 0.5, 0.5}
	for _, c := range []struct {
		used []int32
		k    int
		want float64
	}{
		{[]int32{1, 2}, 2, 1},
		{[]int32{1, 3}, 2, 0.5}, // of equal scores the lower index is first
		{[]int32{0}, 3, 0},
		{nil, 2, 1},
		{[]int32{0, 3}, 9, 1},
	} {
		if got := Found(p, c.used, c.k); got != c.want {
			t.Errorf("used %v at %d: got %v, want %v", c.used, c.k, got, c.want)
		}
	}
}

func TestTokenTable(t *testing.T) {
	tab := newTokenTable(4, 2)
	for range 3 {
		tab.add(7, []int32{1, 2})
	}
	tab.add(7, []int32{1, 3}) // takes the place of the lesser of two
	long := longRun{p: make([]float32, 4), inverse: make([]float32, 4)}
	for e := range long.p {
		long.p[e], long.inverse[e] = 0.25, 4
	}
	ratio, best := make([]float32, 4), make([]float32, 4)
	tab.evidence(7, &long, ratio, best)
	if !(best[1] > 0.8 && best[0] < 0.1 && ratio[1] > 0 && ratio[0] < 0) {
		t.Errorf("evidence: got ratio %v best %v, want expert 1 near 1 and expert 0 near 0", ratio, best)
	}
	tab.evidence(8, &long, ratio, best)
	if best[1] != 0 || ratio[1] != 0 {
		t.Errorf("unknown token: got ratio %v best %v, want 0", ratio, best)
	}
	// A rival of the same slot has to come several times to take it.
	rival := int32(-1)
	for x := int32(8); rival < 0; x++ {
		if tab.slot(x) == tab.slot(7) {
			rival = x
		}
	}
	tab.add(rival, []int32{0, 3})
	if _, ok := tab.find(7); !ok {
		t.Error("after one rival: got token 7 gone, want it kept")
	}
	for range 8 {
		tab.add(rival, []int32{0, 3})
	}
	if _, ok := tab.find(rival); !ok {
		t.Error("after nine rivals: got the rival unknown, want it to hold the slot")
	}
}
