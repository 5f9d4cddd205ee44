package router

import (
	"errors"
	"math"
	"strings"
	"sync"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

var small = layout.Shape{Layers: 4, Experts: 16, TopK: 3}

// every makes each predictor, with those that read a trace.
func every(t *testing.T, shape layout.Shape, passes []pass) []Predictor {
	t.Helper()
	var all []Predictor
	for _, name := range Names() {
		p, err := New(name, shape)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Name(); got != name {
			t.Errorf("name: got %q, want %q", got, name)
		}
		all = append(all, p)
	}
	o, err := NewOracle(shape, recorded(shape, passes, true))
	if err != nil {
		t.Fatal(err)
	}
	return append(all, o, newRevealed(t, "online", recorded(shape, passes, true)))
}

func TestNewUnknown(t *testing.T) {
	_, err := New("clairvoyant", small)
	if !errors.Is(err, ErrUnknownPredictor) {
		t.Fatalf("got %v, want ErrUnknownPredictor", err)
	}
	for _, want := range append(Names(), `"clairvoyant"`) {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("text: got %q, want it to name %s", err, want)
		}
	}
}

func TestBadShapeAndOptions(t *testing.T) {
	for _, name := range Names() {
		if _, err := New(name, layout.Shape{Layers: 1, Experts: 4, TopK: 5}); err == nil {
			t.Errorf("%s: got no error for top-k over the experts, want one", name)
		}
	}
	for _, o := range []OnlineOptions{{TokenSlots: 3}, {TokenSlots: -4}, {TokenSlots: maxTokenSlots * 2}, {TokenWidth: -1}, {TokenWidth: maxTokenWidth + 1}} {
		if _, err := NewOnline(small, o); !errors.Is(err, ErrOption) {
			t.Errorf("%+v: got %v, want ErrOption", o, err)
		}
	}
	huge := layout.Shape{Layers: 64, Experts: 4096, TopK: 8}
	for _, name := range []string{"online", "transition"} {
		if _, err := New(name, huge); !errors.Is(err, ErrShape) {
			t.Errorf("%s for 4096 experts: got %v, want ErrShape", name, err)
		}
	}
	other := recorded(layout.Shape{Layers: 2, Experts: 8, TopK: 2}, nil, false)
	if _, err := NewOracle(small, other); !errors.Is(err, ErrShape) {
		t.Errorf("oracle of another shape: got %v, want ErrShape", err)
	}
}

// TestConformance runs all predictors over odd input: scores stay
// probabilities, and what does not exist is left out.
func TestConformance(t *testing.T) {
	passes := synthetic(small, 60, 3)
	for _, p := range every(t, small, passes) {
		t.Run(p.Name(), func(t *testing.T) {
			h := p.NewHistory()
			dst := make([]float32, small.Experts)
			check := func(when string) {
				t.Helper()
				for l := range small.Layers {
					h.Score(l, dst)
					for e, q := range dst {
						if !(q >= 0 && q <= 1.0001) {
							t.Fatalf("%s: layer %d expert %d: got %v, want a probability", when, l, e, q)
						}
					}
				}
			}
			check("before the first pass")
			for i, x := range passes {
				h.Begin(trace.Phase(i%3), x.tokens)
				for l := range small.Layers {
					h.Observe(l, x.layer(l))
				}
			}
			check("after some passes")
			nan := float32(math.NaN())
			h.Begin(trace.Prefill, []int32{1, 2, -1})
			h.Observe(0, []Choice{{Experts: []int32{0, 1}}, {Experts: []int32{1, 99, -1}, Weights: []float32{nan, 1, 1}}, {}})
			h.Observe(1, nil)
			h.Observe(-1, passes[0].layer(0))
			h.Observe(small.Layers, passes[0].layer(0))
			h.Observe(2, []Choice{{Experts: []int32{5}, Weights: []float32{nan}}})
			check("after odd input")
			for _, l := range []int{-1, small.Layers} {
				dst[0] = 1
				if h.Score(l, dst); dst[0] != 0 {
					t.Errorf("layer %d: got %v, want 0: it does not exist", l, dst[0])
				}
			}
		})
	}
}

func TestNoAllocations(t *testing.T) {
	passes := synthetic(small, 200, 3)
	for _, p := range every(t, small, passes) {
		h := p.NewHistory()
		dst := make([]float32, small.Experts)
		n := 0
		step := func() {
			x := passes[n%len(passes)]
			n++
			h.Begin(trace.Decode, x.tokens)
			for l := range small.Layers {
				h.Score(l, dst)
				h.Observe(l, x.layer(l))
			}
		}
		warm := 100
		if _, ok := p.(*HistoryTransition); ok {
			warm = maxIndexTokens // its memory grows until it is full
		}
		for range warm {
			step()
		}
		if got := testing.AllocsPerRun(50, step); got != 0 {
			t.Errorf("%s: got %v allocations a pass, want 0", p.Name(), got)
		}
	}
}

// TestConcurrentHistories is for the race detector.
func TestConcurrentHistories(t *testing.T) {
	passes := synthetic(small, 100, 5)
	for _, p := range every(t, small, passes) {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				h := p.NewHistory()
				dst := make([]float32, small.Experts)
				for i, x := range passes {
					h.Begin(trace.Phase(1+i%2), x.tokens)
					for l := range small.Layers {
						h.Observe(l, x.layer(l))
						h.Score((l+1)%small.Layers, dst)
					}
				}
			})
		}
		wg.Wait()
	}
}

func TestDeterminism(t *testing.T) {
	shape := small
	passes := synthetic(shape, 300, 9)
	var first *Evaluation
	for range 2 {
		p, err := NewOnline(shape, OnlineOptions{})
		if err != nil {
			t.Fatal(err)
		}
		e, err := Evaluate(t.Context(), p, recorded(shape, passes, true), EvalOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if first != nil && e.Overall != first.Overall {
			t.Errorf("second run: got %+v, want %+v", e.Overall, first.Overall)
		}
		first = e
	}
}

func TestOracleIsRight(t *testing.T) {
	passes := synthetic(small, 50, 2)
	tr := recorded(small, passes, true)
	o, err := NewOracle(small, tr)
	if err != nil {
		t.Fatal(err)
	}
	e, err := Evaluate(t.Context(), o, tr, EvalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if e.Overall.AtK != 1 || e.Layers[0].AtK != 1 {
		t.Errorf("recall: got %v and %v in layer 0, want 1", e.Overall.AtK, e.Layers[0].AtK)
	}
	if o, err = NewOracle(small, tr); err != nil {
		t.Fatal(err)
	}
	h, dst := o.NewHistory(), make([]float32, small.Experts)
	h.Begin(trace.Decode, nil)
	h.Observe(1, passes[0].layer(1))
	h.Score(1, dst)
	for _, x := range passes[1].choices[1].Experts {
		if dst[x] != 1 {
			t.Errorf("next pass, expert %d: got %v, want 1", x, dst[x])
		}
	}
	h = o.NewHistory() // the trace has no second sequence
	if h.Score(0, dst); Found(dst, passes[0].choices[0].Experts, small.Experts) != 1 || dst[0] != 0 {
		t.Errorf("history without a sequence: got %v, want 0", dst)
	}
}
