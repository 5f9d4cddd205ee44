package router

import (
	"math"
	"slices"
	"testing"

	"outrider/layout"
)

func TestRecentOrders(t *testing.T) {
	shape := layout.Shape{Layers: 2, Experts: 2, TopK: 2}
	lru := func() (Order, error) { return NewLRU(shape) }
	lfu := func() (Order, error) { return NewLFU(shape) }
	for _, c := range []struct {
		name string
		make func() (Order, error)
		told []execution
		want []id // first to go first
	}{
		{"lru", lru, []execution{{0, []int32{0}}, {1, []int32{0, 1}}, {0, []int32{1, 0}}}, []id{{1, 1}, {1, 0}, {0, 1}, {0, 0}}},
		{"lru, one never used", lru, []execution{{0, []int32{0}}, {1, []int32{0}}, {0, []int32{1}}}, []id{{1, 1}, {0, 0}, {1, 0}, {0, 1}}},
		{"lfu", lfu, []execution{{0, []int32{0}}, {0, []int32{0}}, {0, []int32{0}}, {1, []int32{0}}, {1, []int32{0}}, {0, []int32{1}}},
			[]id{{1, 1}, {0, 1}, {1, 0}, {0, 0}}},
		{"lfu, ties by age", lfu, []execution{{1, []int32{0}}, {0, []int32{0}}, {1, []int32{1}}, {0, []int32{1}}}, []id{{1, 0}, {0, 0}, {1, 1}, {0, 1}}},
		{"lfu, ties in one execution", lfu, []execution{{1, []int32{1, 0}}, {0, []int32{0, 1}}}, []id{{1, 1}, {1, 0}, {0, 1}, {0, 0}}},
	} {
		o, err := c.make()
		if err != nil {
			t.Fatal(err)
		}
		route(o, c.told)
		if got := ranked(o, shape); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// TestRecentExpect: both orders count layer executions, not uses.
func TestRecentExpect(t *testing.T) {
	shape := layout.Shape{Layers: 3, Experts: 8, TopK: 2}
	lru, err := NewLRU(shape)
	if err != nil {
		t.Fatal(err)
	}
	lfu, err := NewLFU(shape)
	if err != nil {
		t.Fatal(err)
	}
	told := []execution{{0, []int32{5, 1}}, {1, []int32{2, 3}}, {2, []int32{4, 5}}, {0, []int32{5, 6}}, {1, []int32{7, 0}}, {2, []int32{1, 2}}}
	for _, o := range []Order{lru, lfu} {
		route(o, told)
		// One expert of three tokens of a batch is used once.
		o.Routed(0, []Choice{{Experts: []int32{5, 7}}, {Experts: []int32{5}}, {Experts: []int32{7, 5}}})
		for range 3 {
			o.Routed(1, nil)
		}
	}
	for _, c := range []struct {
		name     string
		o        Order
		at       id
		from, to float64
	}{
		{"lru, used in the first of ten", lru, id{0, 1}, 9, 10},
		{"lru, used in the second", lru, id{1, 2}, 8, 9}, // less than one more, to rank within one execution
		{"lru, used in the seventh", lru, id{0, 7}, 3, 4},
		{"lru, used in the sixth", lru, id{2, 2}, 4, 5},
		{"lru, never used", lru, id{2, 0}, 1e9, math.MaxFloat64},
		{"lfu, used 3 times in ten", lfu, id{0, 5}, 10.0/3 - 1e-6, 10.0 / 3},
		{"lfu, used once", lfu, id{0, 7}, 10 - 1e-6, 10},
		{"lfu, never used", lfu, id{2, 0}, 1e9, math.MaxFloat64},
	} {
		if got := c.o.Expect(c.at.layer, c.o.Keys(c.at.layer)[c.at.index]); got < c.from || got > c.to {
			t.Errorf("%s: got %v, want %v to %v", c.name, got, c.from, c.to)
		}
	}
}
