package learned

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"outrider/router"
	"outrider/trace"
)

// TestNonsenseFadesOut: whatever a network says, after some hundred tokens the
// forecast is as good as online's.
func TestNonsenseFadesOut(t *testing.T) {
	const warm = 400
	tr := generated(t, small, 1400)
	judge := func(p router.Predictor, warm int) router.Recall {
		t.Helper()
		e, err := router.Evaluate(t.Context(), p, tr, router.EvalOptions{Warm: warm})
		if err != nil {
			t.Fatal(err)
		}
		return e.Overall
	}
	online := func() router.Predictor {
		p, err := router.New("online", small)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	want := judge(online(), warm)
	for name, m := range map[string]*Model{
		"random":   drawn(t, Dims{Shape: small, Embedding: 8, Hidden: 7}, 1),
		"random 2": drawn(t, Dims{Shape: small, Embedding: 2, Hidden: 1}, 2),
		"huge":     altered(t, func(skip []float32) { skip[0], skip[router.FeatureColumns()-1] = 1e6, -1e6 }),
		"inverted": altered(t, func(skip []float32) { skip[router.FeatureColumns()-1] = -1 }),
		"constant": altered(t, func(skip []float32) {
			skip[router.FeatureColumns()-1], skip[router.FeatureColumns()+inputHorizon+int(Near)] = 0, 3
		}),
		"timid":     altered(t, func(skip []float32) { skip[router.FeatureColumns()-1] = 0.6 }),
		"overdone":  altered(t, func(skip []float32) { skip[router.FeatureColumns()-1] = 2 }),
		"near only": altered(t, func(skip []float32) { skip[router.FeatureColumns()+inputHorizon+int(Near)] = 0.5 }),
	} {
		p := over(t, m)
		got := judge(p, warm)
		if got.AtK < 0.99*want.AtK || got.LogLoss > 1.01*want.LogLoss {
			t.Errorf("%s: got recall %.4f and log loss %.4f, online has %.4f and %.4f", name, got.AtK, got.LogLoss, want.AtK, want.LogLoss)
		}
		t.Logf("%s: recall %.4f, log loss %.4f (online %.4f, %.4f), followed %.3f in layer 2", name, got.AtK, got.LogLoss, want.AtK, want.LogLoss, p.Follow(2))
	}
}

// altered is the identity with other weights past the hidden units.
func altered(t *testing.T, change func(skip []float32)) *Model {
	t.Helper()
	p := identity(t, small).Parameters()
	for l := range p.Layers {
		change(p.Layers[l].Skip)
	}
	m, err := NewModel("altered", Dims{Shape: small, Embedding: 2, Hidden: 3}, p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func over(t *testing.T, m *Model) *Predictor {
	t.Helper()
	p, err := New(m)
	if err != nil {
		t.Fatal(err)
	}
	return p.(*Predictor)
}

// TestBlendFindsTheBestWeight: of networks that say so much of the truth, beside an
// online forecast that knows nothing of it.
func TestBlendFindsTheBestWeight(t *testing.T) {
	const experts = 64
	for said, want := range map[float64]float64{1: 1, 2: 0.5, 0.8: 1.25, 0.3: blendMost, -1: 0, 0: 1} {
		random := rand.New(rand.NewPCG(3, 4))
		b := blend{weight: 1}
		o := opinion{online: make([]float32, experts), other: make([]float32, experts)}
		online, odds, used := make([]float32, experts), make([]float32, experts), make([]bool, experts)
		for range 2000 {
			for e := range used {
				base, hidden := float32(-2), random.NormFloat64()
				online[e], odds[e] = base, base+float32(said*hidden)
				used[e] = random.Float64() < float64(sigmoid(base+float32(hidden)))
			}
			b.mix(&o, online, odds)
			b.learn(&o, used)
		}
		if got := float64(b.weight); math.Abs(got-want) > 0.12 {
			t.Errorf("%v of the truth: got weight %.3f, want about %.3f", said, got, want)
		}
	}
}

// TestBlendIsJudgedOnce: only a forecast that was asked for is judged, once, and by
// a choice of one token.
func TestBlendIsJudgedOnce(t *testing.T) {
	p := over(t, drawn(t, Dims{Shape: small, Embedding: 8, Hidden: 7}, 1))
	h, dst := p.NewHistory(), make([]float32, small.Experts)
	one := []router.Choice{{Experts: []int32{1, 2, 3}}}
	follow := func() float64 { return p.Follow(1) }
	h.Begin(trace.Decode, nil)
	h.Observe(1, one)
	if got := follow(); got != 1 {
		t.Errorf("nothing was forecast: got weight %v, want 1", got)
	}
	for name, choices := range map[string][]router.Choice{"two tokens": {one[0], one[0]}, "none": nil, "no experts": {{}}, "unknown experts": {{Experts: []int32{-1, 99}}}} {
		h.Begin(trace.Decode, []int32{1}) // after a pass of several tokens the next one is known to be single
		h.Score(1, dst)
		if h.Observe(1, choices); follow() != 1 {
			t.Errorf("%s: got weight %v, want 1", name, follow())
		}
	}
	h.Begin(trace.Decode, []int32{1})
	h.Score(1, dst)
	h.Observe(1, one)
	first := follow()
	if h.Observe(1, one); first == 1 || follow() != first {
		t.Errorf("got weight %v, then %v, want a change and then none", first, follow())
	}
	if got := p.Follow(0); got != 1 {
		t.Errorf("another layer: got weight %v, want 1", got)
	}
}

// TestBlendIsSaved: and what no blend can be is refused.
func TestBlendIsSaved(t *testing.T) {
	m := drawn(t, Dims{Shape: small, Embedding: 8, Hidden: 7}, 1)
	first, second := over(t, m), over(t, m)
	if _, err := router.Evaluate(t.Context(), first, generated(t, small, 50), router.EvalOptions{}); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := router.Save(&b, first); err != nil {
		t.Fatal(err)
	}
	if err := router.LoadInto(&b, second); err != nil {
		t.Fatal(err)
	}
	for l := range first.blends {
		x, y := &first.blends[l], &second.blends[l]
		if x.weight == 1 || x.weight != y.weight || x.curvature != y.curvature {
			t.Errorf("layer %d: got weight %v and curvature %v, saved were %v and %v", l, y.weight, y.curvature, x.weight, x.curvature)
		}
	}
	first.blends[2].weight = 2
	if err := router.Save(&b, first); err == nil {
		t.Error("a weight of 2: got no error, want one")
	}
}
