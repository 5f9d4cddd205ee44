package router

import (
	"errors"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"outrider/experts"
	"outrider/layout"
	"outrider/trace"
)

// search is the most hits that any order of eviction can have on layer executions,
// each a set of experts as bits, by trying all: for very short sequences only. What
// a layer uses stays while it executes.
type search struct {
	sets     []uint64
	capacity int
	memo     map[[2]uint64]int
}

func (s *search) best(at int, held uint64) int {
	if at == len(s.sets) {
		return 0
	}
	key := [2]uint64{uint64(at), held}
	if n, ok := s.memo[key]; ok {
		return n
	}
	set := s.sets[at]
	most := s.evict(at, held|set, set)
	s.memo[key] = most + bits.OnesCount64(held&set)
	return s.memo[key]
}

// evict tries all ways to bring held down to the capacity without touching fixed.
func (s *search) evict(at int, held, fixed uint64) int {
	if bits.OnesCount64(held) <= s.capacity {
		return s.best(at+1, held)
	}
	most := -1
	for free := held &^ fixed; free != 0; free &= free - 1 {
		most = max(most, s.evict(at, held&^(free&-free), fixed))
	}
	return most
}

func bitsOf(shape layout.Shape, layer int, used []int32) (set uint64) {
	for _, e := range used {
		set |= 1 << (layer*shape.Experts + int(e))
	}
	return set
}

// demandHits serves executions through a table that the order ranks.
func demandHits(t *testing.T, shape layout.Shape, capacity int, o Order, executions []execution) (hits int) {
	t.Helper()
	table, err := experts.NewTable(experts.TableOptions{
		Shape: shape, BudgetBytes: int64(capacity), Bytes: func(int) int64 { return 1 }, Policy: o, Protect: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range executions {
		table.Step()
		o.Routed(x.layer, []Choice{{Experts: x.used}})
		table.Invalidate(x.layer)
		var missing []layout.ExpertID
		for _, e := range x.used {
			at := layout.ExpertID{Layer: int32(x.layer), Index: e}
			if table.Use(at).Resident() {
				hits++
				table.Pin(at)
			} else {
				missing = append(missing, at)
			}
		}
		for _, at := range missing {
			if _, err := table.Begin(at, experts.Demand, 0); err != nil {
				t.Fatal(err)
			}
			table.Commit(at, 1)
		}
		for _, e := range x.used {
			table.Unpin(layout.ExpertID{Layer: int32(x.layer), Index: e})
		}
	}
	return hits
}

func executionsOf(tr *trace.Trace) (all []execution) {
	for i := range tr.Len() {
		for l := range tr.Header.Shape.Layers {
			used, _ := tr.Row(i, l)
			all = append(all, execution{l, used})
		}
	}
	return all
}

func TestOptimumAgainstSearch(t *testing.T) {
	shape := layout.Shape{Layers: 2, Experts: 5, TopK: 2}
	for seed := range uint64(20) {
		passes := synthetic(shape, 8, seed)
		tr := recorded(shape, passes, false)
		executions := executionsOf(tr)
		for _, capacity := range []int{2, 3, 5, 7} {
			o, err := NewOptimum(shape, tr, 0)
			if err != nil {
				t.Fatal(err)
			}
			s := search{capacity: capacity, memo: map[[2]uint64]int{}}
			for _, x := range executions {
				s.sets = append(s.sets, bitsOf(shape, x.layer, x.used))
			}
			got, want := demandHits(t, shape, capacity, o, executions), s.best(0, 0)
			if got != want {
				t.Errorf("seed %d, room for %d: got %d hits, want %d", seed, capacity, got, want)
			}
			for name, other := range orders(t, shape, passes) {
				if n := demandHits(t, shape, capacity, other, executions); n > want {
					t.Errorf("seed %d, room for %d: %s: got %d hits, want at most the optimum's %d", seed, capacity, name, n, want)
				}
			}
		}
	}
}

// TestOptimumTurns serves experts one by one, so that one that had its turn may go.
func TestOptimumTurns(t *testing.T) {
	shape := layout.Shape{Layers: 2, Experts: 5, TopK: 2}
	for seed := range uint64(20) {
		tr := recorded(shape, synthetic(shape, 8, seed), false)
		executions := executionsOf(tr)
		for _, capacity := range []int{1, 2, 3, 5} {
			o, err := NewOptimum(shape, tr, 0)
			if err != nil {
				t.Fatal(err)
			}
			s := search{capacity: capacity, memo: map[[2]uint64]int{}}
			held, hits := map[id]bool{}, 0
			for _, x := range executions {
				o.Begin()
				for _, e := range x.used {
					s.sets = append(s.sets, bitsOf(shape, x.layer, []int32{e}))
					at := id{x.layer, int(e)}
					if held[at] {
						hits++
					} else if len(held) == capacity {
						dropLast(o, held)
					}
					held[at] = true
					o.Turn(x.layer, e)
				}
			}
			if want := s.best(0, 0); hits != want {
				t.Errorf("seed %d, room for %d: got %d hits, want %d", seed, capacity, hits, want)
			}
		}
	}
}

// dropLast evicts what is expected last; of one execution, by its key.
func dropLast(o *Optimum, held map[id]bool) {
	var victim id
	last := math.Inf(-1)
	for x := range held {
		if k := o.Keys(x.layer)[x.index]; k > last || (k == last && (x.layer < victim.layer || x.index < victim.index)) {
			victim, last = x, k
		}
	}
	delete(held, victim)
}

// TestOptimumExpectsExactly looks every next use up in the list of executions, also
// where passes are batches of several tokens.
func TestOptimumExpectsExactly(t *testing.T) {
	shape := layout.Shape{Layers: 3, Experts: 7, TopK: 2}
	rng := rand.New(rand.NewPCG(5, 5))
	var executions []execution
	for range 40 {
		for l := range shape.Layers {
			var used []int32
			for _, e := range rng.Perm(shape.Experts)[:1+rng.IntN(5)] {
				used = append(used, int32(e))
			}
			executions = append(executions, execution{l, used})
		}
	}
	o, err := NewOptimumOf(shape, 5, func(yield func(int, []int32) bool) {
		for _, x := range executions {
			if !yield(x.layer, append(x.used, x.used[0])) { // named twice, counted once
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for now := -1; now < len(executions); now++ {
		if now >= 0 {
			x := executions[now]
			o.Routed(x.layer, []Choice{{Experts: x.used[:1]}, {Experts: x.used}})
		}
		for l := range shape.Layers {
			for e := range shape.Experts {
				want := slices.IndexFunc(executions[now+1:], func(x execution) bool { return x.layer == l && slices.Contains(x.used, int32(e)) })
				got := o.Expect(l, o.Keys(l)[e])
				if want >= 0 && got != float64(want+1) {
					t.Fatalf("after execution %d: expert %d of layer %d: got %v, want %d", now, e, l, got, want+1)
				}
				if want < 0 && got < 1e9 {
					t.Fatalf("after execution %d: expert %d of layer %d is never used again: got %v, want it very far", now, e, l, got)
				}
			}
		}
	}
}

// TestOptimumTokens: tokens bound what is known of the trace, and rows that use
// fewer experts than top-k are no obstacle.
func TestOptimumTokens(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 4, TopK: 2}
	tr, err := trace.NewTrace(trace.Header{Model: "short rows", Shape: shape})
	if err != nil {
		t.Fatal(err)
	}
	for _, ids := range [][]int32{{0, -1}, {1, 2}, {3, -1}, {0, 1}} {
		if err := tr.Append(&trace.Activation{Token: -1, Experts: ids}); err != nil {
			t.Fatal(err)
		}
	}
	for tokens, want := range map[int]float64{0: 4, 4: 4, 99: 4, -1: 4, 3: neverUsed} {
		o, err := NewOptimum(shape, tr, tokens)
		if err != nil {
			t.Fatal(err)
		}
		o.Routed(0, []Choice{{Experts: []int32{0}}})
		got := o.Expect(0, o.Keys(0)[0]) + 1
		if want == neverUsed && got < 1e9 || want != neverUsed && got != want {
			t.Errorf("%d tokens: got expert 0 again in %v, want %v", tokens, got, want)
		}
		if cap(o.next) > 4*2 {
			t.Errorf("%d tokens: got %d entries, want at most one for each id of the trace", tokens, cap(o.next))
		}
	}
}

func TestOptimumErrors(t *testing.T) {
	one := func(layer int, used ...int32) func(func(int, []int32) bool) {
		return func(yield func(int, []int32) bool) {
			for range 3 {
				if !yield(layer, used) {
					return
				}
			}
		}
	}
	for _, c := range []struct {
		name  string
		width int
		plan  func(func(int, []int32) bool)
		err   error
		text  string
	}{
		{"no width", 0, one(0, 1), ErrOption, "width"},
		{"too wide", 1, one(0, 1, 2), ErrOption, "uses 2 experts"},
		{"layer", 4, one(4, 1), ErrShape, "layer 4"},
		{"negative layer", 4, one(-1, 1), ErrShape, "layer -1"},
		{"expert", 4, one(0, 16), ErrShape, "expert 16"},
		{"negative expert", 4, one(0, -1), ErrShape, "expert -1"},
		{"too many", 1 << 31, one(0, 1), ErrOption, "too many"},
	} {
		_, err := NewOptimumOf(small, c.width, c.plan)
		if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got %v, want %v that names %s", c.name, err, c.err, c.text)
		}
	}
	if _, err := NewOptimumOf(layout.Shape{}, 1, one(0, 1)); err == nil {
		t.Error("bad shape: got no error, want one")
	}
	other := recorded(layout.Shape{Layers: 2, Experts: 8, TopK: 2}, nil, false)
	if _, err := NewOptimum(small, other, 0); !errors.Is(err, ErrShape) {
		t.Errorf("trace of another shape: got %v, want ErrShape", err)
	}
	wide := layout.Shape{Layers: 1024, Experts: 4096, TopK: 4096}
	long := &trace.Trace{Header: trace.Header{Shape: wide}, Seqs: make([]int64, 1024)}
	if _, err := NewOptimum(wide, long, 0); !errors.Is(err, ErrOption) || !strings.Contains(err.Error(), "bound the number") {
		t.Errorf("2^32 expert ids: got %v, want ErrOption with the remedy", err)
	}
}
