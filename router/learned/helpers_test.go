package learned

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"outrider/layout"
	"outrider/router"
	"outrider/trace"
	"outrider/trace/synth"
)

var small = layout.Shape{Layers: 4, Experts: 16, TopK: 3, LayerIDs: []int{1, 2, 5, 6}}

// drawn is a network of random weights.
func drawn(tb testing.TB, d Dims, seed uint64) *Model {
	tb.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	draw := func(n int, size float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(random.NormFloat64() * size)
		}
		return x
	}
	spread := router.FeatureColumns() + 1
	p := Parameters{Centre: draw(spread, 1), Scale: draw(spread, 1), Layers: make([]Layer, d.Shape.Layers)}
	for i, s := range p.Scale {
		p.Scale[i] = float32(math.Abs(float64(s))) + 0.5
	}
	for l := range p.Layers {
		for _, part := range p.Layers[l].parts(d) {
			*part.numbers = draw(part.length, 0.3)
		}
	}
	m, err := NewModel("drawn", d, p)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// identity is a network that forecasts what the online predictor does.
func identity(tb testing.TB, shape layout.Shape) *Model {
	tb.Helper()
	d, spread := Dims{Shape: shape, Embedding: 2, Hidden: 3}, router.FeatureColumns()+1
	p := Parameters{Centre: make([]float32, spread), Scale: make([]float32, spread), Layers: make([]Layer, shape.Layers)}
	for i := range p.Scale {
		p.Scale[i] = 1
	}
	for l := range p.Layers {
		for _, part := range p.Layers[l].parts(d) {
			*part.numbers = make([]float32, part.length)
		}
		p.Layers[l].Skip[router.FeatureColumns()-1] = 1
	}
	m, err := NewModel("identity", d, p)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

func saved(tb testing.TB, m *Model) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := m.Save(&b); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// generated is a trace in which layers and tokens follow each other.
func generated(tb testing.TB, shape layout.Shape, tokens int) *trace.Trace {
	tb.Helper()
	s, err := synth.New(synth.Markov, synth.Options{Shape: shape, Tokens: tokens, Sequences: 3, Seed: 5})
	if err != nil {
		tb.Fatal(err)
	}
	t, err := trace.ReadAll(s, 0)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// choose is what token i of a trace chose in a layer.
func choose(t *trace.Trace, i, layer int) []router.Choice {
	experts, weights := t.Row(i, layer)
	return []router.Choice{{Experts: experts, Weights: weights}}
}
