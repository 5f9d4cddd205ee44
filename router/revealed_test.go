package router

import (
	"slices"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

func newRevealed(t *testing.T, name string, tr *trace.Trace) Predictor {
	t.Helper()
	inner, err := New(name, tr.Header.Shape)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewRevealed(inner, tr)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRevealedKnowsTheNextLayer: two sequences take turns; each knows its own next
// layer, and of every other layer just what the inner predictor says.
func TestRevealedKnowsTheNextLayer(t *testing.T) {
	tr := twoSequences(t, small, synthetic(small, 40, 6))
	p := newRevealed(t, "recency", tr)
	if got, want := p.Name(), "recency+next"; got != want {
		t.Errorf("name: got %q, want %q", got, want)
	}
	plain, err := New("recency", small)
	if err != nil {
		t.Fatal(err)
	}
	ours, inner := NewHistories(p, tr, tr.Len()), NewHistories(plain, tr, tr.Len())
	for i := range tr.Len() {
		h, in := ours.Begin(i), inner.Begin(i)
		checkRevealed(t, h, in, tr, i, 0)
		for l := range small.Layers {
			h.Observe(l, ours.Choice(i, l))
			in.Observe(l, inner.Choice(i, l))
			switch {
			case l+1 < small.Layers:
				checkRevealed(t, h, in, tr, i, l+1)
			case i+2 < tr.Len():
				checkRevealed(t, h, in, tr, i+2, 0) // the sequence's own next token
			default:
				checkRevealed(t, h, in, tr, i, -1) // its end
			}
		}
	}
}

// checkRevealed holds the scores of all layers to the truth, for one layer, and to
// another history for the rest.
func checkRevealed(t *testing.T, h, inner History, tr *trace.Trace, token, next int) {
	t.Helper()
	got, want := make([]float32, small.Experts), make([]float32, small.Experts)
	for l := range small.Layers {
		h.Score(l, got)
		inner.Score(l, want)
		if l == next {
			clear(want)
			used, _ := tr.Row(token, l)
			for _, e := range used {
				want[e] = 1
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("token %d, layer %d, next %d: got %v, want %v", token, l, next, got, want)
		}
	}
}

func TestRevealedChunk(t *testing.T) {
	passes := synthetic(small, 6, 6)
	tr := recorded(small, passes, true)
	h := newRevealed(t, "frequency", tr).NewHistory()
	dst := make([]float32, small.Experts)
	used := func(layer int, of []pass) []int32 {
		var all []int32
		for _, p := range of {
			all = append(all, p.choices[layer].Experts...)
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	ones := func() (all []int32) {
		for e, p := range dst {
			if p == 1 {
				all = append(all, int32(e))
			}
		}
		return all
	}
	h.Begin(trace.Prefill, []int32{1, 2, 3, 4})
	if h.Score(0, dst); !slices.Equal(ones(), used(0, passes[:4])) {
		t.Errorf("first layer of a chunk: got %v, want %v", ones(), used(0, passes[:4]))
	}
	h.Observe(0, []Choice{passes[0].choices[0], passes[1].choices[0], passes[2].choices[0], passes[3].choices[0]})
	if h.Score(1, dst); !slices.Equal(ones(), used(1, passes[:4])) {
		t.Errorf("second layer: got %v, want %v", ones(), used(1, passes[:4]))
	}
	h.Observe(small.Layers-1, make([]Choice, 4))
	if h.Score(0, dst); !slices.Equal(ones(), used(0, passes[4:5])) {
		t.Errorf("after the chunk: got %v, want %v", ones(), used(0, passes[4:5]))
	}
}

func TestRevealedBadTrace(t *testing.T) {
	inner, err := New("frequency", small)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewRevealed(inner, &trace.Trace{Header: trace.Header{Shape: layout.Shape{Layers: 1}}}); err == nil {
		t.Error("bad shape: got no error, want one")
	}
}

// twoSequences is a trace of two sequences that take turns.
func twoSequences(t *testing.T, shape layout.Shape, passes []pass) *trace.Trace {
	t.Helper()
	tr := recorded(shape, passes, true)
	for i := range tr.Seqs {
		tr.Seqs[i] = int64(i % 2)
	}
	return tr
}
