package runtime_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"outrider/internal/device"
	"outrider/layout"
	"outrider/router"
	"outrider/runtime"
)

// An order that was given ranks what is kept: the same experts stay as in a
// plain model of it, and without a predictor nothing is forecast.
func TestOrderRanksWhatIsKept(t *testing.T) {
	order, err := router.NewLFU(small)
	if err != nil {
		t.Fatal(err)
	}
	m := open(t, 5, device.Model{}, runtime.Options{Order: order})
	defer m.Close()
	s := m.NewSession()
	defer s.Close()
	// Layer 0 uses 0 and 1 again and again; everything else comes once.
	for i := range int32(6) {
		serve(t, m, s, 0, []int32{0, 1})
		serve(t, m, s, 1, []int32{2 * i, 2*i + 1})
	}
	before := m.Stats()
	serve(t, m, s, 0, []int32{0, 1})
	after := m.Stats()
	if got := after.Hits - before.Hits; got != 2 {
		t.Errorf("the two experts used most often: got %d hits, want 2", got)
	}
	if after.Reads.Issued != 0 {
		t.Errorf("got %d speculative reads without a predictor, want none", after.Reads.Issued)
	}
}

// A predictor beside an order, or beside KeepLRU, reads ahead.
func TestPredictorReadsAheadUnderAnotherRule(t *testing.T) {
	for _, o := range []runtime.Options{{Keep: runtime.KeepLRU}, {Order: leastStale(t, small)}} {
		demand := play(t, 1, o)
		o.Predictor = &knowing{shape: small}
		if o.Order != nil {
			o.Order = leastStale(t, small)
		}
		ahead := play(t, 1, o)
		if ahead.Reads.Issued == 0 || ahead.Stall >= demand.Stall {
			t.Errorf("%+v: got %d speculative reads and stall %v, without them %v: want some, and less",
				o, ahead.Reads.Issued, ahead.Stall, demand.Stall)
		}
	}
}

func leastStale(t *testing.T, shape layout.Shape) router.Order {
	t.Helper()
	order, err := router.NewLeastStale(shape)
	if err != nil {
		t.Fatal(err)
	}
	return order
}

// An order's calls never overlap, whatever the sessions do.
func TestOrderIsToldByOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order, err := router.NewLRU(small)
		if err != nil {
			t.Fatal(err)
		}
		m := open(t, 16, slow, runtime.Options{Order: order})
		defer m.Close()
		done := make(chan struct{})
		for seed := range uint64(4) {
			go func() {
				defer func() { done <- struct{}{} }()
				r := rand.New(rand.NewPCG(seed, 1))
				s := m.NewSession()
				defer s.Close()
				for range 50 {
					for layer := range small.Layers {
						serve(t, m, s, layer, wander(r, small, 2))
					}
				}
			}()
		}
		for range 4 {
			<-done
		}
	})
}
