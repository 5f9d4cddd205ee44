package router

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

var hintShape = layout.Shape{Layers: 4, Experts: 32, TopK: 4}

func newHinted(t testing.TB, shape layout.Shape) *Hinted {
	t.Helper()
	inner, err := NewOnline(shape, OnlineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return NewHinted(inner, shape)
}

// Without hints a Hinted is its inner predictor, bit for bit; and a hint of one
// layer changes no other.
func TestHintedIsInnerWithoutHints(t *testing.T) {
	passes := synthetic(hintShape, 200, 5)
	plain, err := New("online", hintShape)
	if err != nil {
		t.Fatal(err)
	}
	want, got, told := plain.NewHistory(), newHinted(t, hintShape).NewHistory(), newHinted(t, hintShape).NewHistory().(Hinter)
	a, b, c := make([]float32, 32), make([]float32, 32), make([]float32, 32)
	for i, x := range passes {
		for _, h := range []History{want, got, told} {
			h.Begin(trace.Decode, x.tokens)
		}
		told.Hint(0, 2, x.choices[2].Experts, nil)
		for l := range hintShape.Layers {
			want.Score(l, a)
			got.Score(l, b)
			told.Score(l, c)
			if !slices.Equal(a, b) {
				t.Fatalf("pass %d layer %d: got other scores than the inner predictor's", i, l)
			}
			if same := slices.Equal(a, c); same != (l != 2) {
				t.Fatalf("pass %d layer %d, hint of layer 2: scores are the inner ones: %v", i, l, same)
			}
			want.Observe(l, x.layer(l))
			got.Observe(l, x.layer(l))
			told.Observe(l, x.layer(l))
		}
	}
}

// source makes hints of a set from what will be chosen.
type hintSource func(rng *rand.Rand, used []int32, experts int) ([]int32, []float32)

// mostly is right three times in four, with probabilities.
func mostly(rng *rand.Rand, used []int32, experts int) ([]int32, []float32) {
	var ids []int32
	var p []float32
	for _, e := range used {
		if rng.IntN(4) == 0 {
			e = int32(rng.IntN(experts))
		}
		if !slices.Contains(ids, e) {
			ids = append(ids, e)
			p = append(p, 0.5+rng.Float32()/2)
		}
	}
	return ids, p
}

var badHints = map[string]hintSource{
	"random": func(rng *rand.Rand, used []int32, experts int) (ids []int32, p []float32) {
		for _, e := range rng.Perm(experts)[:2*len(used)] {
			ids = append(ids, int32(e))
			p = append(p, rng.Float32())
		}
		return ids, p
	},
	"random ids": func(rng *rand.Rand, used []int32, experts int) (ids []int32, p []float32) {
		for _, e := range rng.Perm(experts)[:len(used)] {
			ids = append(ids, int32(e))
		}
		return ids, nil
	},
	"constant": func(_ *rand.Rand, used []int32, _ int) (ids []int32, p []float32) {
		for e := range used {
			ids = append(ids, int32(e))
			p = append(p, 0.99)
		}
		return ids, p
	},
	"inverted": func(_ *rand.Rand, used []int32, experts int) (ids []int32, p []float32) {
		for e := range int32(experts) {
			ids = append(ids, e)
			p = append(p, 0.9)
			if slices.Contains(used, e) {
				p[e] = 0.05
			}
		}
		return ids, p
	},
}

// outcome is what a predictor with hints found from some pass on.
type outcome struct{ recall, loss, calibration float64 }

// followHints replays passes, each layer hinted of from the one before.
func followHints(p Predictor, shape layout.Shape, passes []pass, from int, hints hintSource) outcome {
	rng := rand.New(rand.NewPCG(7, 7))
	h := p.NewHistory()
	dst := make([]float32, shape.Experts)
	var o outcome
	var n float64
	var bins [10][2]float64
	for i, x := range passes {
		h.Begin(trace.Decode, x.tokens)
		for l := range shape.Layers {
			used := x.choices[l].Experts
			if hints != nil {
				ids, p := hints(rng, used, shape.Experts)
				h.(Hinter).Hint(l-1, l, ids, p)
			}
			h.Score(l, dst)
			if i >= from {
				n++
				o.recall += Found(dst, used, shape.TopK)
				for e, q := range dst {
					hit := 0.0
					if slices.Contains(used, int32(e)) {
						hit = 1
					}
					o.loss -= hit*math.Log(max(float64(q), 1e-6)) + (1-hit)*math.Log(max(1-float64(q), 1e-6))
					b := &bins[min(int(q*10), 9)]
					b[0] += float64(q)
					b[1] += hit
				}
			}
			h.Observe(l, x.layer(l))
		}
	}
	for _, b := range bins {
		o.calibration += math.Abs(b[0]-b[1]) / n / float64(shape.Experts)
	}
	o.recall /= n
	o.loss /= n * float64(shape.Experts)
	return o
}

// Hints that are worth something raise the recall, those that are worth nothing
// are ignored after a few hundred tokens, and the scores stay probabilities of
// what comes true.
func TestHintsAreLearned(t *testing.T) {
	passes := synthetic(hintShape, 1200, 11)
	const from = 300
	plain := followHints(newHinted(t, hintShape), hintShape, passes, from, nil)
	good := followHints(newHinted(t, hintShape), hintShape, passes, from, mostly)
	t.Logf("no hints: %+v", plain)
	t.Logf("good hints: %+v", good)
	if good.recall < plain.recall+0.02 || good.loss > 0.7*plain.loss || good.calibration > plain.calibration {
		t.Errorf("good hints: got %+v, without hints %+v", good, plain)
	}
	for name, source := range badHints {
		bad := followHints(newHinted(t, hintShape), hintShape, passes, from, source)
		t.Logf("%s: %+v", name, bad)
		if bad.recall < plain.recall-0.01 || bad.loss > 1.02*plain.loss || bad.calibration > plain.calibration+0.005 {
			t.Errorf("%s hints: got %+v, without hints %+v", name, bad, plain)
		}
	}
}

// Trust is there from the first token: a model that nothing is known of yet is
// forecast by its hints.
func TestFirstHintIsTrusted(t *testing.T) {
	h := newHinted(t, hintShape).NewHistory().(Hinter)
	h.Begin(trace.Decode, nil)
	want := []int32{3, 9, 20, 31}
	h.Hint(-1, 1, want, []float32{0.9, 0.8, 0.7, 0.6})
	dst := make([]float32, hintShape.Experts)
	h.Score(1, dst)
	if Found(dst, want, 4) != 1 || dst[3] < 0.5 || dst[0] > 0.2 {
		t.Errorf("got %v, want the hinted experts %v", dst, want)
	}
}

// What one token uses is joined with what another does; ids alone count by
// their order.
func TestHintsOfTokensJoin(t *testing.T) {
	k := newHint(8)
	k.start(1, 0)
	k.join([]int32{0, 1, 2}, []float32{0.5, 0.25, 0.125}, 2)
	k.join([]int32{1, 0, 3}, []float32{0.75, 0.5, 0.125}, 2)
	for e, want := range []float32{0.75, 0.8125, 0.125, 0.125} {
		if got := sigmoid(k.odds[e]); math.Abs(float64(got-want)) > 0.01 {
			t.Errorf("expert %d: joined probability %.3f, want %.3f", e, got, want)
		}
	}
	if want := []uint8{placeFirst, placeFirst, placeSecond, placeSecond, placeAbsent}; !slices.Equal(k.place[:5], want) {
		t.Errorf("places: got %v, want %v", k.place[:5], want)
	}
	k.start(1, 0)
	k.join([]int32{7, 6, 5, 4, 3}, nil, 2)
	if want := []uint8{placeAbsent, placeAbsent, placeAbsent, placeListed, placeSecond, placeSecond, placeFirst, placeFirst}; !slices.Equal(k.place, want) {
		t.Errorf("places of ids alone: got %v, want %v", k.place, want)
	}
	if !slices.IsSorted(k.odds[3:]) || k.margin[5] >= 0 || k.margin[6] <= 0 {
		t.Errorf("ids alone: odds %v, margins %v", k.odds, k.margin)
	}
}

// What makes no sense is left out, and what is left counts.
func TestNonsenseIsNoHint(t *testing.T) {
	nan := float32(math.NaN())
	inf := float32(math.Inf(1))
	for name, hint := range map[string]func(Hinter){
		"nothing":          func(h Hinter) { h.Hint(0, 1, nil, nil) },
		"no such layer":    func(h Hinter) { h.Hint(0, 4, []int32{1}, nil); h.Hint(0, -1, []int32{1}, nil) },
		"wrong length":     func(h Hinter) { h.Hint(0, 1, []int32{1, 2}, []float32{0.5}); h.Hint(0, 1, []int32{1}, []float32{}) },
		"unknown ids":      func(h Hinter) { h.Hint(0, 1, []int32{-1, 32, math.MaxInt32, math.MinInt32}, nil) },
		"no probabilities": func(h Hinter) { h.Hint(0, 1, []int32{1, 2, 3, 4}, []float32{nan, -0.1, inf, 7}) },
	} {
		h := newHinted(t, hintShape).NewHistory().(Hinter)
		h.Begin(trace.Decode, nil)
		hint(h)
		for l := range hintShape.Layers {
			if h.Hinted(l) {
				t.Errorf("%s: layer %d counts as hinted", name, l)
			}
		}
	}
	dst := make([]float32, 32)
	clean, odd := newHinted(t, hintShape).NewHistory().(Hinter), newHinted(t, hintShape).NewHistory().(Hinter)
	clean.Begin(trace.Decode, nil)
	odd.Begin(trace.Decode, nil)
	clean.Hint(0, 1, []int32{4, 5}, []float32{0.5, 0.25})
	odd.Hint(0, 1, []int32{99, 4, 4, 6, 5, -3}, []float32{0.9, 0.5, 0.9, nan, 0.25, 0.1})
	clean.Score(1, dst)
	want := slices.Clone(dst)
	odd.Score(1, dst)
	if !slices.Equal(dst, want) {
		t.Errorf("got %v, want what is left to count alone: %v", dst, want)
	}
}

// A hint is of the layer's next execution, and the nearest counts.
func TestHintsOfWhichPass(t *testing.T) {
	choice := []Choice{{Experts: []int32{1, 2, 3, 4}}}
	h := newHinted(t, hintShape).NewHistory().(Hinter)
	is := func(when string, want ...int) {
		t.Helper()
		for l := range hintShape.Layers {
			if got := h.Hinted(l); got != slices.Contains(want, l) {
				t.Errorf("%s: layer %d hinted: %v", when, l, got)
			}
		}
	}
	tell := func(from, layer int) { h.Hint(from, layer, []int32{1, 2, 3, 4}, nil) }
	h.Hint(3, 0, []int32{1}, nil) // before the first pass: of it
	h.Begin(trace.Decode, nil)
	is("first pass", 0)
	tell(-1, 0)
	tell(-1, 2)
	is("told", 0, 2)
	h.Observe(0, choice)
	is("redeemed", 2)
	tell(0, 0)
	tell(0, 1)
	is("of the next pass", 0, 1, 2)
	h.Begin(trace.Decode, nil)
	is("others are void", 0)
	tell(-1, 3)
	far, _ := h.(*hintedHistory).nearest(3)
	h.Observe(0, choice)
	h.Observe(1, choice)
	tell(1, 3)
	tell(2, 3)
	near, d := h.(*hintedHistory).nearest(3)
	if d != 0 || near == far || near.from != 2 {
		t.Errorf("the nearest hint comes from layer %d at distance %d, want 2 and 0", near.from, d+1)
	}
	h.Observe(2, choice)
	h.Observe(3, choice)
	is("all redeemed")
}

// Histories share what is learned of hints, from several goroutines.
func TestHintedHistoriesInParallel(t *testing.T) {
	p := newHinted(t, hintShape)
	passes := synthetic(hintShape, 60, 2)
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() { followHints(p, hintShape, passes, 0, mostly) })
	}
	wait.Wait()
	if p.layers[1].heads[0][0].bias == nil {
		t.Error("nothing was learned")
	}
}

func TestHintsDoNotAllocate(t *testing.T) {
	passes := synthetic(hintShape, 100, 2)
	h := newHinted(t, hintShape).NewHistory().(Hinter)
	dst, n := make([]float32, 32), 0
	p := []float32{0.9, 0.8, 0.7, 0.6}
	step := func() {
		x := passes[n%len(passes)]
		n++
		h.Begin(trace.Decode, x.tokens)
		for l := range hintShape.Layers {
			for d := 1; d < 4; d++ {
				h.Hint(l-d, l, x.choices[l].Experts, p)
			}
			h.Score(l, dst)
			h.Observe(l, x.layer(l))
		}
	}
	for range 100 {
		step()
	}
	if got := testing.AllocsPerRun(50, step); got != 0 {
		t.Errorf("got %v allocations a pass, want 0", got)
	}
}

// BenchmarkHint measures one layer of 128 experts, top 8, all of them hinted.
func BenchmarkHint(b *testing.B) {
	shape := layout.Shape{Layers: 2, Experts: 128, TopK: 8}
	frequency, err := NewFrequency(shape)
	if err != nil {
		b.Fatal(err)
	}
	h := NewHinted(frequency, shape).NewHistory().(Hinter)
	rng := rand.New(rand.NewPCG(1, 1))
	ids, p := make([]int32, 128), make([]float32, 128)
	for e := range ids {
		ids[e], p[e] = int32(e), rng.Float32()
	}
	dst := make([]float32, 128)
	choice := []Choice{{Experts: ids[:8]}}
	b.Run("hint", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.Begin(trace.Decode, nil)
			h.Hint(-1, 0, ids, p)
		}
	})
	b.Run("score", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.Score(0, dst)
		}
	})
	b.Run("observe", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.Begin(trace.Decode, nil)
			h.Hint(-1, 0, ids[:8], p[:8])
			h.Observe(0, choice)
		}
	})
	b.Run("guess of 2048", func(b *testing.B) {
		g := NewGuesser(shape, layout.RouterRule{Scoring: layout.ScoreSoftmax})
		m := &layout.RouterMatrix{Weight: make([]float32, 128*2048)}
		for i := range m.Weight {
			m.Weight[i] = rng.Float32() - 0.5
		}
		b.ReportAllocs()
		for b.Loop() {
			g.Guess(m, m.Weight[:2048])
		}
	})
}
