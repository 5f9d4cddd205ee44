package router

import (
	"slices"
	"testing"

	"outrider/layout"
)

// TestLeastStaleAgainstModel compares the whole ranking after each execution with
// one that is worked out from the list of uses.
func TestLeastStaleAgainstModel(t *testing.T) {
	shape := layout.Shape{Layers: 5, Experts: 6, TopK: 2}
	o, err := NewLeastStale(shape)
	if err != nil {
		t.Fatal(err)
	}
	last := map[id]int{} // pass of the last use
	for n, p := range synthetic(shape, 60, 4) {
		for l := range shape.Layers {
			if n == 30 && l > 2 {
				continue // a pass that was cut short
			}
			o.Routed(l, p.layer(l))
			for _, e := range p.choices[l].Experts {
				last[id{l, int(e)}] = n
			}
			for layer := range shape.Layers {
				distance := (layer - l + shape.Layers) % shape.Layers
				if distance == 0 {
					distance = shape.Layers
				}
				for e := range shape.Experts {
					got := o.Expect(layer, o.Keys(layer)[e])
					used, ok := last[id{layer, e}]
					want := float64((n-used)*shape.Layers + distance)
					if ok && got != want {
						t.Fatalf("pass %d, layer %d: expert %d of layer %d: got %v, want %v", n, l, e, layer, got, want)
					}
					if !ok && got < 1e9 {
						t.Fatalf("expert %d of layer %d was never used: got %v, want it very far", e, layer, got)
					}
				}
			}
		}
	}
}

// TestLeastStaleSparesWhatComesNext is what the order is for: LRU drops the experts
// of the layer that comes next, since those are the ones used longest ago.
func TestLeastStaleSparesWhatComesNext(t *testing.T) {
	shape := layout.Shape{Layers: 4, Experts: 2, TopK: 1}
	told := []execution{{0, []int32{0}}, {1, []int32{0}}, {2, []int32{0}}, {3, []int32{0}}, {0, []int32{1}}, {1, []int32{1}}}
	used := []id{{0, 0}, {1, 0}, {2, 0}, {3, 0}, {0, 1}, {1, 1}}
	firstOf := func(o Order) id {
		route(o, told)
		all := ranked(o, shape)
		return all[slices.IndexFunc(all, func(x id) bool { return slices.Contains(used, x) })]
	}
	stale, err := NewLeastStale(shape)
	if err != nil {
		t.Fatal(err)
	}
	// Layers 0 and 1 are done with, and of them layer 1 comes again last.
	if got, want := firstOf(stale), (id{1, 0}); got != want {
		t.Errorf("first to go: got %v, want %v", got, want)
	}
	all := ranked(stale, shape)
	if got, want := all[len(all)-1], (id{0, 1}); got != want {
		t.Errorf("last to go: got %v, want %v", got, want)
	}
}
