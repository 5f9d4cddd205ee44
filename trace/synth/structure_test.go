package synth

import (
	"math"
	"testing"

	"outrider/layout"
	"outrider/router"
	"outrider/trace"
)

func stats(t *testing.T, kind Kind, o Options) *trace.Stats {
	t.Helper()
	s, err := trace.Collect(newStreamOf(t, kind, o), 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Warnings) > 0 {
		t.Errorf("%s: got warnings %+v, want none", kind, s.Warnings)
	}
	return s
}

// chiSquare is that of counts against expected shares, over its mean; about 1 if
// they agree.
func chiSquare(counts []uint64, shares []float64) float64 {
	n := uint64(0)
	for _, c := range counts {
		n += c
	}
	sum := 0.0
	for i, c := range counts {
		want := shares[i] * float64(n)
		sum += (float64(c) - want) * (float64(c) - want) / want
	}
	return sum / float64(len(counts)-1)
}

// Draws of one expert a row have shares known in closed form.
func TestLoads(t *testing.T) {
	shape := layout.Shape{Layers: 3, Experts: 20, TopK: 1}
	even := make([]float64, 20)
	zipf, sum := make([]float64, 20), 0.0
	for i := range even {
		even[i] = 1.0 / 20
		zipf[i] = math.Pow(float64(i+1), -1.3)
		sum += zipf[i]
	}
	o := Options{Shape: shape, Tokens: 20000, Seed: 9, Skew: 1.3}
	u, z := stats(t, Uniform, o), stats(t, Zipf, o)
	orders := newStreamOf(t, Zipf, o).(*stream).rows
	for l := range shape.Layers {
		if x := chiSquare(u.Layers[l].Loads, even); x < 0.2 || x > 2.2 {
			t.Errorf("uniform, layer %d: got chi-square/free %.2f, want about 1", l, x)
		}
		shares := make([]float64, 20)
		for rank, e := range orders.order(0, l).experts {
			shares[e] = zipf[rank] / sum
		}
		if x := chiSquare(z.Layers[l].Loads, shares); x < 0.2 || x > 2.2 {
			t.Errorf("zipf, layer %d: got chi-square/free %.2f, want about 1", l, x)
		}
	}
}

// Pairs without repetition: a sequential draw has a known probability of each.
func TestRowsWithoutRepetition(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 4, TopK: 2}
	for _, kind := range []Kind{Uniform, Zipf} {
		o := Options{Shape: shape, Tokens: 30000, Seed: 4}
		p := []float64{0.25, 0.25, 0.25, 0.25}
		if kind == Zipf {
			orders := newStreamOf(t, Zipf, o).(*stream).rows
			for rank, e := range orders.order(0, 0).experts {
				p[e] = 1 / float64(rank+1) / (1 + 1.0/2 + 1.0/3 + 1.0/4)
			}
		}
		tr := made(t, kind, o)
		var counts []uint64
		var shares []float64
		for a := range int32(4) {
			for b := range int32(4) {
				if a == b {
					continue
				}
				n := uint64(0)
				for i := range tr.Len() {
					if row, _ := tr.Row(i, 0); row[0] == a && row[1] == b {
						n++
					}
				}
				counts, shares = append(counts, n), append(shares, p[a]*p[b]/(1-p[a]))
			}
		}
		if x := chiSquare(counts, shares); x < 0.15 || x > 2.5 {
			t.Errorf("%s: got chi-square/free %.2f of ordered pairs, want about 1", kind, x)
		}
	}
}

func TestWhatThereIsToLearn(t *testing.T) {
	shape := layout.Shape{Layers: 6, Experts: 32, TopK: 4}
	o := Options{Shape: shape, Tokens: 5000, Sequences: 5, Seed: 11}
	if s := stats(t, Uniform, o); !s.Uniform {
		t.Errorf("uniform: got %+v, want it to be called uniform", s.Layers[1])
	}
	z := stats(t, Zipf, o)
	if l := z.Layers[3]; z.Uniform || l.MaxMean < 2 || l.TokenInfo > 0.005 || l.LayerInfo > 0.005 {
		t.Errorf("zipf: got uniform %v, max/mean %.2f, from token %.3f, from layer %.3f; want a skewed load and no information", z.Uniform, l.MaxMean, l.TokenInfo, l.LayerInfo)
	}
	m := stats(t, Markov, o)
	for i, l := range m.Layers {
		if m.Uniform || l.TokenInfo < 0.03 || (i > 0 && l.LayerInfo < 0.1) || l.Reuse < 1.3*l.ReuseChance {
			t.Errorf("markov, layer %d: got uniform %v, from token %.3f, from layer %.3f, reuse %.3f of chance %.3f; want all clearly above", i, m.Uniform, l.TokenInfo, l.LayerInfo, l.Reuse, l.ReuseChance)
		}
	}
	o.LayerPull, o.PastPull = -1, -1
	if l := stats(t, Markov, o).Layers[3]; l.TokenInfo > 0.005 || l.LayerInfo > 0.005 {
		t.Errorf("markov without pulls: got from token %.3f, from layer %.3f, want 0", l.TokenInfo, l.LayerInfo)
	}
	if s := stats(t, Domains, Options{Shape: shape, Tokens: 5000, Seed: 11}); s.Uniform {
		t.Error("domains: got uniform")
	}
}

// Whoever learns transitions must beat whoever counts, changes of domain must hurt
// whoever counts for long, and nobody may win where there is nothing to learn.
func TestWhoWins(t *testing.T) {
	shape := layout.Shape{Layers: 6, Experts: 32, TopK: 4}
	recall := func(kind Kind, name string, o Options) float64 {
		p, err := router.New(name, shape)
		if err != nil {
			t.Fatal(err)
		}
		o.Shape, o.Tokens, o.Seed = shape, 2000, 6
		e, err := router.Evaluate(t.Context(), p, made(t, kind, o), router.EvalOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return e.Overall.AtK
	}
	counted, transition, online := recall(Markov, "frequency", Options{}), recall(Markov, "transition", Options{}), recall(Markov, "online", Options{})
	if transition < counted+0.1 || online < counted+0.1 {
		t.Errorf("markov: got recall %.3f by frequency, %.3f by transition, %.3f online; want the last two clearly higher", counted, transition, online)
	}
	alike := Options{Skew: 1, LayerPull: 0.4, PastPull: 0.2}
	one, several := recall(Markov, "frequency", alike), recall(Domains, "frequency", alike)
	if several > one-0.05 {
		t.Errorf("domains: got recall %.3f by frequency, %.3f within one domain; want it clearly lower", several, one)
	}
	if recent := recall(Domains, "recency", alike); recent < several+0.02 {
		t.Errorf("domains: got recall %.3f by recency, %.3f by frequency; want the first higher", recent, several)
	}
	if online := recall(Uniform, "online", Options{}); online > 0.14 {
		t.Errorf("uniform: got recall %.3f online, want 0.125, that of chance", online)
	}
}

// The token's id tells layer 0 much, and layer 3 nothing by itself.
func TestTokenTellsFirstLayers(t *testing.T) {
	shape := layout.Shape{Layers: 4, Experts: 64, TopK: 2}
	tr := made(t, Markov, Options{Shape: shape, Tokens: 20000, Seed: 2, Vocabulary: 100})
	agree := func(layer int) float64 {
		last := map[int32]int32{} // the first expert of the last row of each token id
		same, n := 0, 0
		for i := range tr.Len() {
			row, _ := tr.Row(i, layer)
			if e, ok := last[tr.Tokens[i]]; ok {
				n++
				if e == row[0] {
					same++
				}
			}
			last[tr.Tokens[i]] = row[0]
		}
		return float64(same) / float64(n)
	}
	first, second, last := agree(0), agree(1), agree(3)
	if !(first > 1.3*second && second > 1.5*last) {
		t.Errorf("same token, same expert: got %.3f in layer 0, %.3f in layer 1, %.3f in layer 3; want it to fall", first, second, last)
	}
}

func TestDomainsSwitchAtTheStatedRate(t *testing.T) {
	o := Options{Shape: small, Tokens: 100000, Sequences: 10, Seed: 5, Domains: 5, Dwell: 50}
	s := newStreamOf(t, Domains, o).(*stream)
	var a trace.Activation
	switches, visits, before := 0, make([]uint64, 5), 0
	for range o.Tokens {
		if err := s.Next(&a); err != nil {
			t.Fatal(err)
		}
		if a.Pos > 0 && s.domain != before {
			switches++
		}
		visits[s.domain]++
		before = s.domain
	}
	// 99,990 chances of 1/50: 2000 with a deviation of 44.
	if switches < 1860 || switches > 2140 {
		t.Errorf("got %d switches in 100000 tokens, want about 2000", switches)
	}
	for d, n := range visits {
		if n < 16000 || n > 24000 {
			t.Errorf("domain %d: got %d of 100000 tokens, want about a fifth", d, n)
		}
	}
	// Each domain has its own popular experts: the load over all is flatter than within one.
	o.LayerPull, o.PastPull, o.Skew = -1, -1, 1
	all, one := stats(t, Domains, o).Layers[2].Entropy, stats(t, Markov, o).Layers[2].Entropy
	if all < one+0.1 {
		t.Errorf("entropy of the load: got %.3f over domains and %.3f within one, want the first clearly higher", all, one)
	}
}
