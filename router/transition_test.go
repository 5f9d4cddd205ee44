package router

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"outrider/internal/testtrace"
	"outrider/layout"
	"outrider/trace"
)

func newHistoryTransition(t testing.TB, shape layout.Shape, tokens int) *HistoryTransition {
	t.Helper()
	p, err := NewHistoryTransition(shape, HistoryTransitionOptions{Tokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestHistoryTransitionOptions(t *testing.T) {
	for _, tokens := range []int{-1, maxIndexTokens + 1} {
		if _, err := NewHistoryTransition(small, HistoryTransitionOptions{Tokens: tokens}); !errors.Is(err, ErrOption) {
			t.Errorf("%d tokens: got %v, want ErrOption", tokens, err)
		}
	}
	for _, shape := range []layout.Shape{{Layers: 1, Experts: 65535, TopK: 1}, {Layers: 64, Experts: 4096, TopK: 1}, {Layers: 64, Experts: 256, TopK: 256}} {
		if _, err := NewHistoryTransition(shape, HistoryTransitionOptions{}); !errors.Is(err, ErrShape) {
			t.Errorf("%+v: got %v, want ErrShape", shape, err)
		}
	}
	if _, err := NewHistoryTransition(layout.Shape{Layers: 64, Experts: 256, TopK: 256}, HistoryTransitionOptions{Tokens: 1000}); err != nil {
		t.Errorf("fewer tokens: got %v, want none", err)
	}
}

// TestVotesAreIntersections: with one expert in the layer before, the forecast is
// the share of the tokens that it came before which chose each expert, as the
// intersections of trace.History count them.
func TestVotesAreIntersections(t *testing.T) {
	passes := synthetic(small, 500, 11)
	index, err := trace.NewHistory(small)
	if err != nil {
		t.Fatal(err)
	}
	p := newHistoryTransition(t, small, 0)
	h := p.NewHistory()
	for i, x := range passes {
		a := trace.Activation{Pos: int64(i), Phase: trace.Decode, Token: x.tokens[0]}
		h.Begin(trace.Decode, nil)
		for l, c := range x.choices {
			a.Experts = append(a.Experts, c.Experts...)
			h.Observe(l, x.layer(l))
		}
		if err := index.Add(&a); err != nil {
			t.Fatal(err)
		}
	}
	even := float64(small.TopK) / float64(small.Experts)
	dst := make([]float32, small.Experts)
	for source := range int32(small.Experts) {
		h.Begin(trace.Decode, nil)
		h.(*indexHistory).layers[1] = indexTrack{pass: h.(*indexHistory).pass, set: []int32{source}}
		h.Score(2, dst)
		for e := range int32(small.Experts) {
			rate := (float64(index.Uses(2, e)) + even) / 501
			want := (float64(index.Transition(1, source, e)) + indexPrior*rate) / (float64(index.Uses(1, source)) + indexPrior)
			if math.Abs(float64(dst[e])-want) > 1e-5 {
				t.Fatalf("expert %d after %d: got %v, want %v", e, source, dst[e], want)
			}
		}
	}
}

// slowVotes is voteLocked from the rows of all tokens.
func slowVotes(before, chose [][]int32, sources []int32, shape layout.Shape) []float64 {
	share := make([]float64, shape.Experts)
	prior, total := 0.0, 0.0
	shared := make([]int, len(before))
	for _, s := range sources {
		n := 0
		for i, b := range before {
			if contains(b, int(s)) {
				n++
				shared[i]++
			}
		}
		share[s] = 1 / (float64(n) + indexPrior)
		prior += indexPrior * share[s]
	}
	least := 1
	for k := 2; k <= len(sources); k++ {
		n := 0
		for _, x := range shared {
			if x >= k {
				n++
			}
		}
		if n >= indexQuorum {
			least = k
		}
	}
	dst, use := make([]float64, shape.Experts), make([]float64, shape.Experts)
	for i, b := range before {
		weight := 0.0
		for _, s := range sources {
			if contains(b, int(s)) {
				weight += share[s]
			}
		}
		if weight *= math.Pow(indexGain, float64(shared[i]-1)); shared[i] < least {
			weight = 0
		}
		total += weight
		for _, e := range chose[i] {
			dst[e] += weight
			use[e]++
		}
	}
	for e := range dst {
		rate := (use[e] + float64(shape.TopK)/float64(shape.Experts)) / float64(len(chose)+1)
		dst[e] = (dst[e] + prior*rate) / (total + prior)
	}
	return dst
}

// TestIndexAgainstRows plays passes of one and of several tokens, and compares
// the forecast with one from the last tokens' rows, whatever is forgotten.
func TestIndexAgainstRows(t *testing.T) {
	const tokens = 300
	p := newHistoryTransition(t, small, tokens)
	h := p.NewHistory()
	rng := rand.New(rand.NewPCG(3, 3))
	passes := synthetic(small, 400, 6)
	last := max(0, len(passes)-tokens)
	dst := make([]float32, small.Experts)
	var before, chose [][]int32
	for at := 0; at < len(passes); {
		width := 1
		if rng.IntN(4) == 0 {
			width = 1 + rng.IntN(6)
		}
		batch := passes[at:min(at+width, len(passes))]
		at += len(batch)
		h.Begin(trace.Prefill, nil)
		for l := range 2 {
			var choices []Choice
			for _, x := range batch {
				choices = append(choices, x.layer(l)...)
			}
			if l == 1 && len(batch) == 1 && at > last {
				h.Score(1, dst)
				want := slowVotes(before, chose, batch[0].choices[0].Experts, small)
				for e, p := range dst {
					if math.Abs(float64(p)-want[e]) > 1e-5 {
						t.Fatalf("after %d tokens, expert %d: got %v, want %v", at, e, p, want[e])
					}
				}
			}
			h.Observe(l, choices)
		}
		for _, x := range batch {
			before, chose = append(before, x.choices[0].Experts), append(chose, x.choices[1].Experts)
		}
		before, chose = before[max(0, len(before)-tokens):], chose[max(0, len(chose)-tokens):]
	}
}

// TestHistoryTransitionFollowsTheToken: after a prompt's pass, the next token's
// first layer is forecast from its last token.
func TestHistoryTransitionFollowsTheToken(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 8, TopK: 1}
	p := newHistoryTransition(t, shape, 0)
	h := p.NewHistory()
	one := func(e int32) Choice { return Choice{Experts: []int32{e}} }
	for range 20 { // 0 1 2 3 0 1 2 3 …
		h.Begin(trace.Prefill, nil)
		h.Observe(0, []Choice{one(0), one(1), one(2)})
		h.Begin(trace.Decode, nil)
		h.Observe(0, []Choice{one(3)})
	}
	dst := make([]float32, shape.Experts)
	h.Begin(trace.Decode, nil)
	for e := range int32(4) {
		if h.Score(0, dst); dst[e] < 0.8 {
			t.Errorf("before %d: got %v", e, dst)
		}
		h.Observe(0, []Choice{one(e)})
		h.Begin(trace.Decode, nil)
	}
}

// TestHistoryTransitionForgets: what was remembered once is gone when so many
// tokens came after it.
func TestHistoryTransitionForgets(t *testing.T) {
	p := newHistoryTransition(t, small, 50)
	h := p.NewHistory()
	follow(h, synthetic(small, 120, 1))
	follow(h, synthetic(small, 50, 2))
	q := newHistoryTransition(t, small, 50)
	g := q.NewHistory()
	follow(g, synthetic(small, 120, 1)[119:]) // the token before the first one remembered
	follow(g, synthetic(small, 50, 2))
	a, b := make([]float32, small.Experts), make([]float32, small.Experts)
	for l := range small.Layers {
		h.Score(l, a)
		g.Score(l, b)
		for e := range a {
			if math.Abs(float64(a[e]-b[e])) > 1e-6 {
				t.Fatalf("layer %d, expert %d: got %v, want %v", l, e, a[e], b[e])
			}
		}
	}
}

// TestHistoryTransitionNoAllocations once the index is full.
func TestHistoryTransitionNoAllocations(t *testing.T) {
	p := newHistoryTransition(t, small, 64)
	h := p.NewHistory()
	passes := synthetic(small, 2000, 1)
	follow(h, passes) // more than it holds, so that all sets have been as large as they get
	n := 0
	dst := make([]float32, small.Experts)
	if got := testing.AllocsPerRun(1000, func() {
		x := passes[n]
		n++
		h.Begin(trace.Decode, x.tokens)
		for l := range small.Layers {
			h.Score(l, dst)
			h.Observe(l, x.layer(l))
		}
	}); got != 0 {
		t.Errorf("got %v allocations a pass, want 0", got)
	}
}

// BenchmarkTransition measures one layer of 128 experts, top 8, with the index
// full. Score includes observing the layer before; intersections is what roaring's
// AndCardinality would take for as many pairs of sets.
func BenchmarkTransition(b *testing.B) {
	shape := layout.Shape{Layers: 2, Experts: 128, TopK: 8}
	passes := synthetic(shape, maxIndexTokens+100, 7)
	for _, name := range []string{"transition", "transition-history"} {
		p, err := New(name, shape)
		if err != nil {
			b.Fatal(err)
		}
		h := p.NewHistory()
		follow(h, passes)
		dst := make([]float32, shape.Experts)
		b.Run(name+"/score", func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				x := passes[n%len(passes)]
				n++
				h.Begin(trace.Decode, nil)
				h.Observe(0, x.layer(0))
				h.Score(1, dst)
			}
		})
		b.Run(name+"/observe", func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if n%2 == 0 {
					h.Begin(trace.Decode, nil)
				}
				h.Observe(n%2, passes[n/2%len(passes)].layer(n%2))
				n++
			}
		})
		if t, ok := p.(*HistoryTransition); ok {
			b.Run(name+"/intersections", func(b *testing.B) {
				b.ReportAllocs()
				near, now := t.layers[1].sets[indexNear], t.layers[1].sets[indexAgain]
				for b.Loop() {
					for _, s := range passes[0].choices[0].Experts {
						for e := range dst {
							dst[e] += float32(near[s].AndCardinality(now[e]))
						}
					}
				}
			})
		}
	}
}

// TestRecordedHistoryTransition holds what tokens tell beyond counts of pairs, on
// the first 3,000 tokens of recorded traces.
func TestRecordedHistoryTransition(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("replays 3,000 tokens of each trace twice")
	}
	for _, name := range []string{"traces/gpt-oss-20b.jsonl.gz", "traces/deepseek-v2-lite-chat.jsonl.gz", "tinymoe/traces.jsonl.gz"} {
		tr := testtrace.Shared(t, name, 3000)
		counts, tokens := evaluate(t, "transition", tr).Overall, evaluate(t, "transition-history", tr).Overall
		t.Logf("%s: recall@K %.3f of counts, %.3f of tokens; log loss %.4f and %.4f", name, counts.AtK, tokens.AtK, counts.LogLoss, tokens.LogLoss)
		if tokens.AtK < counts.AtK+0.05 || tokens.LogLoss > counts.LogLoss {
			t.Errorf("%s: got recall %.3f and log loss %.4f, want 0.05 more than %.3f and less than %.4f", name, tokens.AtK, tokens.LogLoss, counts.AtK, counts.LogLoss)
		}
	}
}
