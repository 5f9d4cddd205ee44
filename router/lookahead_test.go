package router

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"outrider/layout"
)

// guessed are the experts above the line: those a router would choose.
func guessed(ids []int32, p []float32) (out []int32) {
	for i, e := range ids {
		if p[i] > 0.5 {
			out = append(out, e)
		}
	}
	slices.Sort(out)
	return out
}

// A guess chooses what a router chooses that is written down as the papers do.
func TestGuessChoosesAsRoutersDo(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 18, TopK: 3}
	rng := rand.New(rand.NewPCG(3, 4))
	for _, scoring := range []layout.Scoring{layout.ScoreSoftmax, layout.ScoreSigmoid, layout.ScoreChosen, layout.ScoreSqrtSoftplus} {
		for _, groups := range []int{0, 1, 3, 9} {
			for kind := range 3 { // plain, with bias, with selection bias
				rule := layout.RouterRule{Scoring: scoring, Groups: groups, GroupsUsed: max(groups-1, groups/2)}
				m := &layout.RouterMatrix{Weight: numbers(rng, 18*21)}
				if kind == 1 {
					m.Bias = numbers(rng, 18)
				}
				if kind == 2 {
					m.Selection = numbers(rng, 18)
				}
				hidden := numbers(rng, 21)
				ids, p := NewGuesser(shape, rule).Guess(m, hidden)
				if got, want := guessed(ids, p), routerChoice(m, rule, hidden, shape.TopK); !slices.Equal(got, want) {
					t.Errorf("%s, %d groups, kind %d: got %v, want %v", scoring, groups, kind, got, want)
				}
			}
		}
	}
}

func numbers(rng *rand.Rand, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(rng.NormFloat64())
	}
	return out
}

// routerChoice is a router, step by step and in float64.
func routerChoice(m *layout.RouterMatrix, rule layout.RouterRule, hidden []float32, topK int) []int32 {
	n := len(m.Weight) / len(hidden)
	score := make([]float64, n)
	for e := range score {
		for i, x := range hidden {
			score[e] += float64(m.Weight[e*len(hidden)+i]) * float64(x)
		}
		if m.Bias != nil {
			score[e] += float64(m.Bias[e])
		}
	}
	var sum float64
	for _, z := range score {
		sum += math.Exp(z)
	}
	for e, z := range score {
		switch rule.Scoring {
		case layout.ScoreSoftmax:
			score[e] = math.Exp(z) / sum
		case layout.ScoreSigmoid:
			score[e] = 1 / (1 + math.Exp(-z))
		case layout.ScoreSqrtSoftplus:
			score[e] = math.Sqrt(math.Log1p(math.Exp(z)))
		}
		if m.Selection != nil {
			score[e] += float64(m.Selection[e])
		}
	}
	allowed := make([]bool, n)
	if rule.Groups < 2 {
		for e := range allowed {
			allowed[e] = true
		}
	} else {
		size := n / rule.Groups
		order := make([]int, rule.Groups)
		value := make([]float64, rule.Groups)
		for g := range order {
			order[g] = g
			group := slices.Clone(score[g*size:][:size])
			slices.Sort(group)
			for _, x := range group[max(0, size-2):] {
				value[g] += x
			}
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(value[b], value[a]) })
		for _, g := range order[:rule.GroupsUsed] {
			for e := range size {
				allowed[g*size+e] = true
			}
		}
	}
	var ids []int32
	for e := range score {
		if allowed[e] {
			ids = append(ids, int32(e))
		}
	}
	slices.SortStableFunc(ids, func(a, b int32) int { return cmp.Compare(score[b], score[a]) })
	ids = ids[:min(topK, len(ids))]
	slices.Sort(ids)
	return ids
}

// What is no hidden state gives no guess, and nothing panics.
func TestGuessOfNonsense(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 4, TopK: 2}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	m := &layout.RouterMatrix{Weight: []float32{1, 0, 0, 1, 1, 1, -1, 0}}
	g := NewGuesser(shape, layout.RouterRule{Scoring: layout.ScoreSigmoid})
	for _, hidden := range [][]float32{nil, {1}, {1, 2, 3}, {nan, 1}, {inf, 1}, {0, 0}} {
		if ids, p := g.Guess(m, hidden); ids != nil || p != nil {
			t.Errorf("%v: got %v %v, want nothing", hidden, ids, p)
		}
	}
	if ids, p := g.Guess(m, []float32{1, 2}); !slices.Equal(guessed(ids, p), []int32{1, 2}) || len(ids) != 4 {
		t.Errorf("got %v %v, want 1 and 2 above the line", ids, p)
	}
	m.Selection = []float32{nan, inf, 1, 0}
	ids, p := g.Guess(m, []float32{1, 2})
	h := newHinted(t, layout.Shape{Layers: 2, Experts: 4, TopK: 2}).NewHistory().(Hinter)
	h.Hint(0, 1, ids, p)
	dst := make([]float32, 4)
	h.Score(1, dst)
	for e, q := range dst {
		if !(q >= 0 && q <= 1) {
			t.Errorf("expert %d: got %v, want a probability", e, q)
		}
	}
}

func TestGuessDoesNotAllocate(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 64, TopK: 6}
	rng := rand.New(rand.NewPCG(1, 2))
	m := &layout.RouterMatrix{Weight: numbers(rng, 64*100), Selection: numbers(rng, 64)}
	g := NewGuesser(shape, layout.RouterRule{Scoring: layout.ScoreSigmoid, Groups: 8, GroupsUsed: 4})
	hidden := numbers(rng, 100)
	if got := testing.AllocsPerRun(20, func() { g.Guess(m, hidden) }); got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

// A hint of a layer beyond the reach makes the sequence look there, and only
// there.
func TestSequencesLookAtHintedLayers(t *testing.T) {
	shape := layout.Shape{Layers: 6, Experts: 8, TopK: 2}
	all := NewSequences(shape, newHinted(t, shape), nil, nil)
	q := all.Open(0)
	layers := func() (out []int) {
		q.LookAhead(1)
		for _, a := range q.Ahead() {
			out = append(out, a.Layer)
			if want := int64((a.Layer - q.layer + 6) % 6); a.NeededBy-q.at != want {
				t.Errorf("layer %d is needed in %d steps, want %d", a.Layer, a.NeededBy-q.at, want)
			}
		}
		return out
	}
	is := func(when string, want ...int) {
		t.Helper()
		if got := layers(); !slices.Equal(got, want) {
			t.Errorf("%s: looks at layers %v, want %v", when, got, want)
		}
	}
	q.Begin(1, 0, nil)
	is("nothing hinted", 0)
	q.Hint(-1, 3, []int32{5, 6}, nil)
	is("before the first layer", 0, 3)
	if p := q.Scores(3); p[5] < 0.5 || p[6] < 0.5 || p[0] > 0.3 {
		t.Errorf("scores of the hinted layer: %v", p)
	}
	q.Observe(2, 0, []Choice{{Experts: []int32{1, 2}}})
	is("first layer known", 1, 3)
	q.Hint(0, 2, []int32{1, 2}, nil)
	q.Hint(0, 0, []int32{1, 2}, nil) // of the next pass, a whole one ahead: never looked at
	is("more", 1, 2, 3)
	for l := 1; l < 5; l++ {
		q.Observe(int64(2+l), l, []Choice{{Experts: []int32{1, 2}}})
	}
	is("the next pass", 5, 0)
	q.Begin(9, 0, nil)
	q.Observe(10, 0, []Choice{{Experts: []int32{1, 2}}})
	is("behind", 1)
	if q.hinted {
		t.Error("hints still looked for")
	}
}
