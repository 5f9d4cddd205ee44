package router

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

func newMatrix(t *testing.T, shape layout.Shape, o MatrixOptions) *Matrix {
	t.Helper()
	m, err := NewMatrix(shape, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// topics makes passes of sequences that each keep to one topic: experts of its own
// in every layer, twice as many as one token uses, all topics equally often. The
// topics of later sequences are drawn at random.
func topics(shape layout.Shape, sequences, tokens int, seed uint64) [][]pass {
	rng := rand.New(rand.NewPCG(seed, 1))
	count := shape.Experts / (2 * shape.TopK)
	order := make([][]int, shape.Layers) // by layer, the experts of topic 0, 1, …
	for l := range order {
		order[l] = rng.Perm(shape.Experts)
	}
	all := make([][]pass, sequences)
	for s := range all {
		topic := rng.IntN(count)
		if s < count {
			topic = s
		}
		for range tokens {
			p := pass{tokens: []int32{1}}
			for l := range shape.Layers {
				own := order[l][topic*2*shape.TopK:][:2*shape.TopK]
				var c Choice
				for _, i := range rng.Perm(len(own))[:shape.TopK] {
					c.Experts = append(c.Experts, int32(own[i]))
				}
				p.choices = append(p.choices, c)
			}
			all[s] = append(all[s], p)
		}
	}
	return all
}

func follow(h History, passes []pass) {
	for _, p := range passes {
		h.Begin(trace.Decode, p.tokens)
		for l := range p.choices {
			h.Observe(l, p.layer(l))
		}
	}
}

// TestMatrixFindsTheTopic: in the first pass of a sequence nothing is known but
// what its first layers used. That tells the topic, and the matrix of that topic
// the layers ahead; frequency knows nothing.
func TestMatrixFindsTheTopic(t *testing.T) {
	shape := layout.Shape{Layers: 6, Experts: 32, TopK: 4}
	for _, c := range []struct {
		o     MatrixOptions
		least float64 // of the last layer's experts found
	}{
		{MatrixOptions{}, 0.9},
		{MatrixOptions{Capacity: 4}, 0.75},
		{MatrixOptions{Window: 1}, 0.5}, // one token names half of what its topic uses
	} {
		all := topics(shape, 40, 40, 8)
		matrix := newMatrix(t, shape, c.o)
		frequency, err := NewFrequency(shape)
		if err != nil {
			t.Fatal(err)
		}
		for _, passes := range all[:20] {
			follow(matrix.NewHistory(), passes)
			follow(frequency.NewHistory(), passes)
		}
		dst := make([]float32, shape.Experts)
		var found, plain float64
		for _, passes := range all[20:] {
			h, f := matrix.NewHistory(), frequency.NewHistory()
			h.Begin(trace.Decode, nil)
			h.Observe(0, passes[0].layer(0))
			last := shape.Layers - 1
			h.Score(last, dst)
			found += Found(dst, passes[0].choices[last].Experts, 2*shape.TopK) / 20
			f.Score(last, dst)
			plain += Found(dst, passes[0].choices[last].Experts, 2*shape.TopK) / 20
		}
		// The topic has twice as many experts as are used, so all are among 2K.
		if found < c.least || found < plain+0.3 {
			t.Errorf("%+v: found %.3f of the last layer's experts and frequency %.3f, want at least %v and 0.3 more", c.o, found, plain, c.least)
		}
	}
}

// TestMatrixBeatsFrequency over whole sequences, in recall and in how sure it is.
func TestMatrixBeatsFrequency(t *testing.T) {
	shape := layout.Shape{Layers: 6, Experts: 32, TopK: 4}
	var passes []pass
	var seqs []int64
	for s, of := range topics(shape, 30, 40, 9) {
		passes = append(passes, of...)
		for range of {
			seqs = append(seqs, int64(s))
		}
	}
	tr := recorded(shape, passes, false)
	tr.Seqs = seqs
	matrix, frequency := evaluate(t, "matrix", tr), evaluate(t, "frequency", tr)
	if got, want := matrix.Overall.AtK, frequency.Overall.AtK+0.2; got < want {
		t.Errorf("recall: got %.3f, want at least %.3f (frequency + 0.2)", got, want)
	}
	if got, want := matrix.Overall.LogLoss, 0.7*frequency.Overall.LogLoss; got > want {
		t.Errorf("log loss: got %.4f, want at most %.4f (0.7 of frequency)", got, want)
	}
}

// TestMatrixBookkeeping holds what histories keep up to date to what comparing whole
// matrices gives, with more windows than the collection has room for.
func TestMatrixBookkeeping(t *testing.T) {
	m := newMatrix(t, small, MatrixOptions{Capacity: 5, Window: 16})
	all := topics(small, 4, 90, 3)
	open := []*matrixHistory{m.NewHistory().(*matrixHistory), m.NewHistory().(*matrixHistory), m.NewHistory().(*matrixHistory)}
	for i := range 90 {
		for s, h := range open {
			p := all[s][i]
			h.Begin(trace.Decode, p.tokens)
			for l := range small.Layers {
				h.Observe(l, p.layer(l))
				checkProducts(t, h)
				if l+1 < small.Layers { // after the last one the own matrix may have moved
					checkFound(t, h, p.choices[:l+1])
				}
			}
		}
	}
	if m.past.count != 5 {
		t.Errorf("matrices: got %d, want the collection full with 5", m.past.count)
	}
	for l := range small.Layers {
		for i := range m.past.count {
			sum := 0.0
			for e := range small.Experts {
				sum += float64(m.past.expert(l, e)[i])
			}
			if math.Abs(sum-1) > 1e-5 {
				t.Errorf("layer %d of matrix %d: got shares that sum to %v, want 1", l, i, sum)
			}
		}
	}
}

func checkProducts(t *testing.T, h *matrixHistory) {
	t.Helper()
	past := &h.matrix.past
	for i := range past.count {
		for l := range small.Layers {
			own := h.own[l*small.Experts:][:small.Experts]
			want := float64(past.product(i, l, own))
			got := float64(h.products[l*past.capacity+i])
			if math.Abs(got-want) > 1e-4*(1+want) {
				t.Fatalf("product of layer %d with matrix %d: got %v, want %v", l, i, got, want)
			}
			cos := got / float64(max(h.lengths[l], 1e-9)) * float64(past.norm(l)[i])
			if cos < 0 || cos > 1.0001 {
				t.Fatalf("similarity of layer %d with matrix %d: got %v, want 0 to 1", l, i, cos)
			}
		}
	}
	if h.found >= 0 && h.found == h.place && past.owners[h.place] == h.id {
		t.Fatalf("found: got %d, the matrix that this sequence writes", h.found)
	}
}

// checkFound compares whole matrices with the choices of this pass so far, and with
// what the sequence did before.
func checkFound(t *testing.T, h *matrixHistory, choices []Choice) {
	t.Helper()
	past := &h.matrix.past
	best := 0.0
	similarity := make([]float64, past.count)
	for i := range similarity {
		for l, c := range choices {
			product := 0.0
			for _, e := range c.Experts {
				product += float64(past.expert(l, int(e))[i])
			}
			similarity[i] += product * float64(past.norm(l)[i]) / math.Sqrt(float64(len(c.Experts)))
		}
		if got := float64(h.pass[i]); math.Abs(got-similarity[i]) > 1e-4 {
			t.Fatalf("similarity of %d layers with matrix %d: got %v, want %v", len(choices), i, got, similarity[i])
		}
		similarity[i] = similarity[i]*passWeight + float64(h.before[i])
		if i != h.place || past.owners[i] != h.id {
			best = max(best, similarity[i])
		}
	}
	if h.found >= 0 && similarity[h.found] < best-1e-3 || h.found < 0 && best > 1e-3 {
		t.Fatalf("found: got matrix %d, want the best of %v", h.found, similarity)
	}
}

// TestMatrixEnters: a sequence that is dropped without a word leaves what it did.
func TestMatrixEnters(t *testing.T) {
	passes := synthetic(small, 100, 1)
	for _, c := range []struct {
		tokens int
		o      MatrixOptions
		want   int
	}{
		{7, MatrixOptions{}, 0},
		{8, MatrixOptions{}, 1},
		{31, MatrixOptions{}, 1},
		{39, MatrixOptions{}, 1},
		{40, MatrixOptions{}, 2},
		{100, MatrixOptions{}, 3},
		{100, MatrixOptions{Capacity: 2}, 2},
		{4, MatrixOptions{Window: 4}, 1},
		{10, MatrixOptions{Window: 1}, 10},
	} {
		m := newMatrix(t, small, c.o)
		follow(m.NewHistory(), passes[:c.tokens])
		if got := m.past.count; got != c.want {
			t.Errorf("%d tokens, %+v: got %d matrices, want %d", c.tokens, c.o, got, c.want)
		}
	}
	// A chunk of a prompt is as many tokens.
	m := newMatrix(t, small, MatrixOptions{})
	h := m.NewHistory()
	h.Begin(trace.Prefill, nil)
	for l := range small.Layers {
		var choices []Choice
		for _, p := range passes[:50] {
			choices = append(choices, p.choices[l])
		}
		h.Observe(l, choices)
	}
	if got := m.past.count; got != 1 {
		t.Errorf("one chunk: got %d matrices, want 1", got)
	}
}

// TestMatrixGivesWay: in a full collection what is alike is held once.
func TestMatrixGivesWay(t *testing.T) {
	shape := layout.Shape{Layers: 3, Experts: 16, TopK: 2}
	all := topics(shape, 4, 8, 2) // four topics
	m := newMatrix(t, shape, MatrixOptions{Capacity: 3})
	for _, passes := range all[:3] {
		follow(m.NewHistory(), passes)
	}
	owners := slices.Clone(m.past.owners)
	again := m.NewHistory()
	follow(again, all[1])
	owners[1] = again.(*matrixHistory).id
	if !slices.Equal(m.past.owners, owners) {
		t.Errorf("after a second sequence of topic 1: got places of %v, want %v", m.past.owners, owners)
	}
	// Its writer is not done with it: it takes another place when that is gone.
	other := m.NewHistory()
	follow(other, all[1])
	follow(again, all[1])
	if got, want := m.past.owners[1], again.(*matrixHistory).id; got != want {
		t.Errorf("place of topic 1: got that of history %d, want %d", got, want)
	}
	follow(m.NewHistory(), all[3]) // like none of them
	if m.past.count != 3 {
		t.Errorf("matrices: got %d, want 3", m.past.count)
	}
}

// TestMatrixWidth: a pass of several tokens uses an expert unless none of them does,
// and decoding after it forecasts one token again.
func TestMatrixWidth(t *testing.T) {
	p := []float32{0, 0.5, 1}
	anyOf(p, 2)
	if want := []float32{0, 0.75, 1}; !slices.Equal(p, want) {
		t.Errorf("any of two: got %v, want %v", p, want)
	}
	h := newMatrix(t, small, MatrixOptions{}).NewHistory()
	sum := func() (total float64) {
		dst := make([]float32, small.Experts)
		h.Score(2, dst)
		for _, q := range dst {
			total += float64(q)
		}
		return total
	}
	follow(h, synthetic(small, 100, 1))
	one := sum()
	if math.Abs(one-float64(small.TopK)) > 0.2 {
		t.Errorf("one token: got %v experts forecast, want about %d", one, small.TopK)
	}
	h.Begin(trace.Prefill, make([]int32, 20))
	if got := sum(); got < 2*one {
		t.Errorf("twenty tokens: got %v experts forecast, want over twice as many as %v", got, one)
	}
	h.Begin(trace.Decode, nil)
	if got := sum(); math.Abs(got-one) > 1e-5 {
		t.Errorf("one token again: got %v experts forecast, want %v", got, one)
	}
}

// TestMatrixFades: counts that decayed to nothing do not stay as numbers that
// processors are slow with.
func TestMatrixFades(t *testing.T) {
	h := newMatrix(t, small, MatrixOptions{Capacity: 2}).NewHistory().(*matrixHistory)
	passes := synthetic(small, 20, 1)
	follow(h, passes)
	for range 3000 {
		h.Begin(trace.Decode, nil)
		for l := range small.Layers {
			h.Observe(l, []Choice{{Experts: []int32{0, 1, 2}}})
		}
	}
	for _, list := range [][]float32{h.own, h.products} {
		for i, x := range list {
			if x != 0 && x < faint/2 {
				t.Fatalf("entry %d: got %v, want 0", i, x)
			}
		}
	}
}

func TestMatrixOptions(t *testing.T) {
	for _, o := range []MatrixOptions{{Capacity: -1}, {Window: -1}, {Window: maxMatrixWindow + 1}} {
		if _, err := NewMatrix(small, o); !errors.Is(err, ErrOption) {
			t.Errorf("%+v: got %v, want ErrOption", o, err)
		}
	}
	if _, err := NewMatrix(small, MatrixOptions{Capacity: 1 << 24}); !errors.Is(err, ErrShape) {
		t.Errorf("2^24 matrices: got %v, want ErrShape", err)
	}
	huge := layout.Shape{Layers: 256, Experts: 4096, TopK: 8}
	if _, err := New("matrix", huge); !errors.Is(err, ErrShape) {
		t.Errorf("256 layers of 4096: got %v, want ErrShape", err)
	}
	if _, err := NewMatrix(layout.Shape{}, MatrixOptions{}); err == nil {
		t.Error("bad shape: got no error, want one")
	}
}
