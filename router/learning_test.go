package router

import (
	"math/rand/v2"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

func evaluate(t *testing.T, name string, tr *trace.Trace) *Evaluation {
	t.Helper()
	p, err := New(name, tr.Header.Shape)
	if err != nil {
		t.Fatal(err)
	}
	e, err := Evaluate(t.Context(), p, tr, EvalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestOnlineBeatsTheRest: on a model with structure the online predictor
// recalls more, and knows better how sure it may be.
func TestOnlineBeatsTheRest(t *testing.T) {
	shape := layout.Shape{Layers: 6, Experts: 32, TopK: 4}
	tr := recorded(shape, synthetic(shape, 1500, 11), false)
	online := evaluate(t, "online", tr)
	for _, name := range Names()[1:] {
		e := evaluate(t, name, tr)
		if online.Overall.AtK <= e.Overall.AtK {
			t.Errorf("recall: got %.3f, want more than %.3f of %s", online.Overall.AtK, e.Overall.AtK, name)
		}
		if online.Overall.LogLoss >= e.Overall.LogLoss {
			t.Errorf("log loss: got %.4f, want less than %.4f of %s", online.Overall.LogLoss, e.Overall.LogLoss, name)
		}
	}
	if online.Overall.AtK > online.Overall.At1p5K || online.Overall.At1p5K > online.Overall.At2K {
		t.Errorf("recall at K, 1.5K, 2K: got %.3f, %.3f, %.3f, want it to rise", online.Overall.AtK, online.Overall.At1p5K, online.Overall.At2K)
	}
}

// TestTokenIdentity: the first layer follows the token, so that knowing it
// must help there most.
func TestTokenIdentity(t *testing.T) {
	shape := layout.Shape{Layers: 3, Experts: 32, TopK: 4}
	passes := synthetic(shape, 1500, 13)
	with := evaluate(t, "online", recorded(shape, passes, true)).Layers[0].AtK
	without := evaluate(t, "online", recorded(shape, passes, false)).Layers[0].AtK
	// One choice in four is noise, so about 0.77 can be known.
	if with < 0.6 || with < without+0.2 {
		t.Errorf("recall of layer 0: got %.3f with token ids and %.3f without, want at least 0.6 and 0.2 more", with, without)
	}
}

// TestUniformIsNotOverrated: where nothing can be known the forecast must say so.
func TestUniformIsNotOverrated(t *testing.T) {
	shape := layout.Shape{Layers: 3, Experts: 32, TopK: 4}
	rng := rand.New(rand.NewPCG(1, 1))
	passes := make([]pass, 1500)
	for i := range passes {
		passes[i].tokens = []int32{rng.Int32N(1000)}
		for range shape.Layers {
			var set []int32
			for _, e := range rng.Perm(shape.Experts)[:shape.TopK] {
				set = append(set, int32(e))
			}
			passes[i].choices = append(passes[i].choices, Choice{Experts: set})
		}
	}
	tr := recorded(shape, passes, true)
	online, frequency := evaluate(t, "online", tr), evaluate(t, "frequency", tr)
	if got, want := online.Overall.LogLoss, frequency.Overall.LogLoss*1.05; got > want {
		t.Errorf("log loss on uniform routing: got %.4f, want at most %.4f (5 %% over frequency)", got, want)
	}
}

// TestPrefillForecastsTheUnion: a pass of many tokens uses more experts than
// one token does, and the forecast must follow.
func TestPrefillForecastsTheUnion(t *testing.T) {
	shape := layout.Shape{Layers: 2, Experts: 32, TopK: 4}
	p, err := NewOnline(shape, OnlineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	passes := synthetic(shape, 1600, 17)
	dst := make([]float32, shape.Experts)
	h := p.NewHistory()
	var expected, actual float64
	for i := 0; i+8 <= len(passes); i += 8 {
		var tokens []int32
		for _, x := range passes[i : i+8] {
			tokens = append(tokens, x.tokens...)
		}
		h.Begin(trace.Prefill, tokens)
		for l := range shape.Layers {
			var choices []Choice
			used := map[int32]bool{}
			for _, x := range passes[i : i+8] {
				choices = append(choices, x.choices[l])
				for _, e := range x.choices[l].Experts {
					used[e] = true
				}
			}
			h.Score(l, dst)
			if i > len(passes)/2 {
				actual += float64(len(used))
				for _, q := range dst {
					expected += float64(q)
				}
			}
			h.Observe(l, choices)
		}
	}
	if ratio := expected / actual; ratio < 0.9 || ratio > 1.1 {
		t.Errorf("experts forecast over experts used: got %.3f, want 0.9 to 1.1", ratio)
	}
	h.Begin(trace.Decode, nil)
	h.Score(1, dst)
	var sum float64
	for _, q := range dst {
		sum += float64(q)
	}
	if sum > 3*float64(shape.TopK) {
		t.Errorf("experts forecast for one decoded token after prefill: got %.1f, want about %d", sum, shape.TopK)
	}
}

func TestEvaluateEmpty(t *testing.T) {
	p, err := NewFrequency(small)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Evaluate(t.Context(), p, recorded(small, nil, false), EvalOptions{}); err == nil {
		t.Error("empty trace: got no error, want one")
	}
	e, err := Evaluate(t.Context(), p, recorded(small, synthetic(small, 20, 1), false), EvalOptions{MaxTokens: 5})
	if err != nil || e.Tokens != 5 {
		t.Errorf("five tokens: got %+v, %v, want 5 tokens", e, err)
	}
}
