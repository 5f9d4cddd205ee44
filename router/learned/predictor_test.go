package learned

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"outrider/layout"
	"outrider/router"
	"outrider/trace"
)

// conforms runs a predictor over a trace and odd input: scores stay probabilities.
func conforms(t *testing.T, p router.Predictor) {
	t.Helper()
	tr := generated(t, small, 40)
	h, dst := p.NewHistory(), make([]float32, small.Experts)
	check := func(when string) {
		t.Helper()
		for l := range small.Layers {
			h.Score(l, dst)
			for e, q := range dst {
				if !(q >= 0 && q <= 1) {
					t.Fatalf("%s: layer %d expert %d: got %v, want a probability", when, l, e, q)
				}
			}
		}
	}
	check("before the first pass")
	for i := range tr.Len() {
		h.Begin(trace.Phase(i%3), tr.Tokens[i:i+1])
		for l := range small.Layers {
			check("in a pass")
			h.Observe(l, choose(tr, i, l))
		}
	}
	h.Begin(trace.Decode, []int32{-1})
	h.Observe(0, []router.Choice{{Experts: []int32{99, -1, 1, 2, 3, 4, 5}}})
	h.Observe(1, nil)
	h.Observe(1, []router.Choice{{}})
	h.Observe(-1, choose(tr, 0, 0))
	h.Observe(small.Layers, choose(tr, 0, 0))
	check("after odd input")
	for _, l := range []int{-1, small.Layers} {
		dst[0] = 1
		if h.Score(l, dst); dst[0] != 0 {
			t.Errorf("layer %d: got %v, want 0: it does not exist", l, dst[0])
		}
	}
	h.Score(0, dst[:3]) // too short: nothing to be written, and no panic
}

func TestPredictorConforms(t *testing.T) {
	p, err := New(drawn(t, Dims{Shape: small, Embedding: 8, Hidden: 7}, 1))
	if err != nil {
		t.Fatal(err)
	}
	if p.Name() != "learned" {
		t.Errorf("name: got %q, want learned", p.Name())
	}
	conforms(t, p)
}

// TestStandsOnOnline: a network that adds nothing forecasts what the online
// predictor does, at any time; passes of several tokens are never its business.
func TestStandsOnOnline(t *testing.T) {
	tr := generated(t, small, 120)
	plain, err := New(identity(t, small))
	if err != nil {
		t.Fatal(err)
	}
	other, err := New(drawn(t, Dims{Shape: small, Embedding: 8, Hidden: 7}, 1))
	if err != nil {
		t.Fatal(err)
	}
	online, err := router.New("online", small)
	if err != nil {
		t.Fatal(err)
	}
	hPlain, hOther, hOnline := plain.NewHistory(), other.NewHistory(), online.NewHistory()
	got, odd, want := make([]float32, small.Experts), make([]float32, small.Experts), make([]float32, small.Experts)
	differs := false
	compare := func(several bool) {
		t.Helper()
		for l := range small.Layers {
			hPlain.Score(l, got)
			hOther.Score(l, odd)
			hOnline.Score(l, want)
			for e := range want {
				if d := got[e] - want[e]; d > 2e-3 || d < -2e-3 {
					t.Fatalf("layer %d expert %d: got %v, want %v", l, e, got[e], want[e])
				}
				if several && odd[e] != want[e] {
					t.Fatalf("several tokens, layer %d expert %d: got %v, want %v of the online predictor", l, e, odd[e], want[e])
				}
				differs = differs || odd[e] != want[e]
			}
		}
	}
	for i := 0; i+4 <= tr.Len(); i += 4 {
		width := 1
		if i%3 == 0 {
			width = 4
		}
		for _, h := range []router.History{hPlain, hOther, hOnline} {
			h.Begin(trace.Prefill, tr.Tokens[i:i+width])
		}
		for l := range small.Layers {
			var choices []router.Choice
			for k := range width {
				choices = append(choices, choose(tr, i+k, l)...)
			}
			compare(width > 1)
			for _, h := range []router.History{hPlain, hOther, hOnline} {
				h.Observe(l, choices)
			}
		}
		compare(width > 1)
	}
	if !differs {
		t.Error("a network of random weights: got the online forecast, want another")
	}
}

func TestNewOverRefusesOtherShapes(t *testing.T) {
	m := identity(t, small)
	for _, shape := range []layout.Shape{
		{Layers: 3, Experts: 16, TopK: 3}, {Layers: 5, Experts: 16, TopK: 3}, {Layers: 4, Experts: 15, TopK: 3}, {Layers: 4, Experts: 17, TopK: 3}, {Layers: 4, Experts: 16, TopK: 2},
	} {
		o, err := router.NewOnline(shape, router.OnlineOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewOver(m, o); !errors.Is(err, router.ErrShape) {
			t.Errorf("%+v: got %v, want ErrShape", shape, err)
		}
	}
}

// TestOverWarm: what the online predictor has learned is used, and it goes on learning.
func TestOverWarm(t *testing.T) {
	tr := generated(t, small, 600)
	o, err := router.NewOnline(small, router.OnlineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	recall := func() float64 {
		p, err := NewOver(identity(t, small), o)
		if err != nil {
			t.Fatal(err)
		}
		e, err := router.Evaluate(t.Context(), p, tr, router.EvalOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return e.Overall.LogLoss
	}
	if cold, warm := recall(), recall(); warm >= cold {
		t.Errorf("log loss: got %.4f the second time, want less than %.4f of the first", warm, cold)
	}
}

// TestSaved: what the online predictor below learned is saved and loaded as any
// other forecast.
func TestSaved(t *testing.T) {
	tr, m := generated(t, small, 200), drawn(t, Dims{Shape: small, Embedding: 8, Hidden: 7}, 1)
	fresh := func() router.Predictor {
		p, err := New(m)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	loss := func(p router.Predictor) float64 {
		e, err := router.Evaluate(t.Context(), p, tr, router.EvalOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return e.Overall.LogLoss
	}
	first, second := fresh(), fresh()
	cold := loss(first)
	var b bytes.Buffer
	if err := router.Save(&b, first); err != nil {
		t.Fatal(err)
	}
	if err := router.LoadInto(&b, second); err != nil {
		t.Fatal(err)
	}
	if got, want := loss(second), loss(first); got != want || got == cold {
		t.Errorf("log loss: got %v from a saved state, %v going on, %v from nothing", got, want, cold)
	}
}

func TestRecentHorizons(t *testing.T) {
	r := NewRecent(small)
	want := func(when string, layer int, h Horizon, before, again []int32) {
		t.Helper()
		v := r.View(layer)
		if v.Horizon != h || len(v.Before) != len(before) || len(v.Again) != len(again) {
			t.Errorf("%s, layer %d: got %+v, want %v, %v, %v", when, layer, v, h, before, again)
		}
	}
	want("at first", 0, Keep, nil, nil)
	r.Begin(nil)
	want("without a token", 0, Keep, nil, nil)
	r.Observe(0, []router.Choice{{Experts: []int32{1}}, {Experts: []int32{2, 3}}})
	if r.Single() {
		t.Error("two tokens: got a single one")
	}
	want("after layer 0", 0, Keep, nil, []int32{2, 3})
	want("after layer 0", 1, Near, []int32{2, 3}, nil)
	want("after layer 0", 3, Ahead, nil, nil)
	r.Begin([]int32{7})
	if !r.Single() {
		t.Error("one token: got several")
	}
	want("with a token", 0, Ahead, nil, []int32{2, 3})
	want("with a token", 1, Ahead, nil, nil)
	r.Begin(nil)
	want("a pass later", 1, Keep, nil, nil)
}

func TestNoAllocations(t *testing.T) {
	tr := generated(t, small, 200)
	p, err := New(drawn(t, Dims{Shape: small, Embedding: 8, Hidden: 7}, 1))
	if err != nil {
		t.Fatal(err)
	}
	h, dst, n := p.NewHistory(), make([]float32, small.Experts), 0
	choices := make([][]router.Choice, 0, tr.Len()*small.Layers)
	for i := range tr.Len() {
		for l := range small.Layers {
			choices = append(choices, choose(tr, i, l))
		}
	}
	step := func() {
		i := n % tr.Len()
		n++
		h.Begin(trace.Decode, tr.Tokens[i:i+1])
		for l := range small.Layers {
			h.Score(l, dst)
			h.Observe(l, choices[i*small.Layers+l])
			h.Score(l, dst)
		}
	}
	for range 100 {
		step()
	}
	if got := testing.AllocsPerRun(50, step); got != 0 {
		t.Errorf("got %v allocations a pass, want 0", got)
	}
}

// TestConcurrentHistories is for the race detector.
func TestConcurrentHistories(t *testing.T) {
	tr := generated(t, small, 60)
	m := drawn(t, Dims{Shape: small, Embedding: 8, Hidden: 7}, 1)
	p, err := New(m)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			h, dst := p.NewHistory(), make([]float32, small.Experts)
			for i := range tr.Len() {
				h.Begin(trace.Decode, nil)
				for l := range small.Layers {
					h.Observe(l, choose(tr, i, l))
					h.Score((l+1)%small.Layers, dst)
				}
			}
		})
	}
	wg.Wait()
}
