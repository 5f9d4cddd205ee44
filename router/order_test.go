package router

import (
	"math"
	"slices"
	"sync"
	"testing"

	"outrider/experts"
	"outrider/layout"
)

// The cache takes any order as its policy.
var _ experts.Policy = Order(nil)

// orders makes each order, for a replay of these passes.
func orders(t *testing.T, shape layout.Shape, passes []pass) map[string]Order {
	t.Helper()
	all := map[string]Order{}
	add := func(name string, o Order, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		all[name] = o
	}
	lru, err := NewLRU(shape)
	add("lru", lru, err)
	lfu, err := NewLFU(shape)
	add("lfu", lfu, err)
	stale, err := NewLeastStale(shape)
	add("least-stale", stale, err)
	best, err := NewOptimum(shape, recorded(shape, passes, false), 0)
	add("optimum", best, err)
	return all
}

// TestOrderConformance: only keys of the layer told of change, and what Expect says
// rises with the key, also long after the key was copied.
func TestOrderConformance(t *testing.T) {
	passes := synthetic(small, 80, 3)
	for name, o := range orders(t, small, passes) {
		t.Run(name, func(t *testing.T) {
			copied := make([][]float64, small.Layers)
			for l := range copied {
				copied[l] = slices.Clone(o.Keys(l))
			}
			for i, p := range passes {
				for l := range small.Layers {
					o.Routed(l, p.layer(l))
					copied[l] = slices.Clone(o.Keys(l))
					for other := range small.Layers {
						if got := o.Keys(other); len(got) != small.Experts || !slices.Equal(got, copied[other]) {
							t.Fatalf("pass %d, after layer %d: keys of layer %d: got %v, want %v", i, l, other, got, copied[other])
						}
						checkRising(t, o, other, copied[other])
					}
				}
			}
		})
	}
}

func checkRising(t *testing.T, o Order, layer int, keys []float64) {
	t.Helper()
	sorted := slices.Sorted(slices.Values(keys))
	before := math.Inf(-1)
	for _, k := range sorted {
		x := o.Expect(layer, k)
		if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 || x < before {
			t.Fatalf("layer %d, key %v: got %v after %v, want numbers from 0 that rise", layer, k, x, before)
		}
		before = x
	}
}

func TestOrderOddInput(t *testing.T) {
	passes := synthetic(small, 2, 3)
	for name, o := range orders(t, small, passes) {
		o.Routed(-1, passes[0].layer(0))
		o.Routed(small.Layers, passes[0].layer(0))
		o.Routed(0, nil)
		o.Routed(1, []Choice{{Experts: []int32{3, 99, -1, 3}}, {}, {Experts: []int32{4, 3}}})
		for range 20 { // beyond what the optimum was made of
			o.Routed(2, passes[0].layer(2))
		}
		for l := range small.Layers {
			for e, k := range o.Keys(l) {
				if x := o.Expect(l, k); math.IsNaN(k) || math.IsNaN(x) {
					t.Errorf("%s: layer %d expert %d: got key %v, expect %v, want numbers", name, l, e, k, x)
				}
			}
		}
	}
	bad := layout.Shape{Layers: 1, Experts: 4, TopK: 5}
	if _, err := NewLRU(bad); err == nil {
		t.Error("lru of a bad shape: got no error, want one")
	}
	if _, err := NewLFU(bad); err == nil {
		t.Error("lfu of a bad shape: got no error, want one")
	}
	if _, err := NewLeastStale(bad); err == nil {
		t.Error("least stale of a bad shape: got no error, want one")
	}
}

func TestOrdersDoNotAllocate(t *testing.T) {
	passes := synthetic(small, 300, 3)
	for name, o := range orders(t, small, passes) {
		n := 0
		if got := testing.AllocsPerRun(50, func() {
			for l := range small.Layers {
				o.Routed(l, passes[n].layer(l))
				o.Expect(l, o.Keys(l)[0])
			}
			n++
		}); got != 0 {
			t.Errorf("%s: got %v allocations a pass, want 0", name, got)
		}
	}
}

// TestExpectFromAnyGoroutine is for the race detector.
func TestExpectFromAnyGoroutine(t *testing.T) {
	passes := synthetic(small, 200, 3)
	for _, o := range orders(t, small, passes) {
		var wg sync.WaitGroup
		done := make(chan struct{})
		for range 2 {
			wg.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
						o.Expect(1, 0)
					}
				}
			})
		}
		for _, p := range passes {
			for l := range small.Layers {
				o.Routed(l, p.layer(l))
			}
		}
		close(done)
		wg.Wait()
	}
}

// id names an expert in short.
type id struct{ layer, index int }

// execution is a layer and what it uses.
type execution struct {
	layer int
	used  []int32
}

func route(o Order, executions []execution) {
	for _, x := range executions {
		o.Routed(x.layer, []Choice{{Experts: x.used}})
	}
}

// ranked lists all experts, those that go first first.
func ranked(o Order, shape layout.Shape) []id {
	var all []id
	for l := range shape.Layers {
		for e := range shape.Experts {
			all = append(all, id{l, e})
		}
	}
	expect := func(x id) float64 { return o.Expect(x.layer, o.Keys(x.layer)[x.index]) }
	slices.SortStableFunc(all, func(a, b id) int {
		switch x, y := expect(a), expect(b); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	return all
}
