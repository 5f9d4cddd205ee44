package router

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"outrider/layout"
	"outrider/trace"
)

// scripted scores by a rule: of the pass, how many of its layers were observed,
// and the layer.
type scripted struct {
	rule     func(pass, observed, layer int, dst []float32)
	observed int
	ids      []bool // of each pass, whether its token was told
}

func (s *scripted) Name() string        { return "scripted" }
func (s *scripted) NewHistory() History { return s }
func (s *scripted) Begin(_ trace.Phase, tokens []int32) {
	s.observed = 0
	s.ids = append(s.ids, tokens != nil)
}
func (s *scripted) Observe(int, []Choice) { s.observed++ }
func (s *scripted) Score(layer int, dst []float32) {
	clear(dst)
	s.rule(len(s.ids)-1, s.observed, layer, dst)
}

// rows is a trace of one sequence; a row has the choices of all layers.
func rows(t *testing.T, shape layout.Shape, rows ...[]int32) *trace.Trace {
	t.Helper()
	tr, err := trace.NewTrace(trace.Header{Model: "m", Shape: shape, Tokens: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range rows {
		a := trace.Activation{Pos: int64(i), Phase: trace.Decode, Token: int32(i), Experts: row}
		if err := tr.Append(&a); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

func near(got, want float64) bool { return math.Abs(got-want) < 1e-6 }

// TestEvaluateByHand: two layers of eight experts, top 2, two tokens. Layer 1 is
// scored 0.9, 0.8, 0.6, 0.4, 0.2, 0, 0, 0 each time.
func TestEvaluateByHand(t *testing.T) {
	shape := layout.Shape{Layers: 2, Experts: 8, TopK: 2}
	tr := rows(t, shape, []int32{0, 1, 0, 2}, []int32{2, 3, 3, 4})
	scores := []float32{0.9, 0.8, 0.6, 0.4, 0.2}
	e, err := Evaluate(t.Context(), &scripted{rule: func(_, _, layer int, dst []float32) {
		if layer == 1 {
			copy(dst, scores)
		}
	}}, tr, EvalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// Token 0 uses ranks 0 and 2, token 1 ranks 3 and 4; 1.5 K is 3 and 2 K is 4.
	got, want := e.Overall, Recall{AtK: 0.25, At1p5K: 0.5, At2K: 0.75, Guesses: 3, Right: 1}
	want.LogLoss = -(math.Log(0.9) + math.Log(0.2) + math.Log(0.6) + math.Log(0.6) + math.Log(0.8) + 3*math.Log(1-1e-6)) / 16
	want.LogLoss -= (math.Log(0.1) + math.Log(0.2) + math.Log(0.4) + math.Log(0.4) + math.Log(0.2) + 3*math.Log(1-1e-6)) / 16
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"recall at K", got.AtK, want.AtK}, {"at 1.5 K", got.At1p5K, want.At1p5K}, {"at 2 K", got.At2K, want.At2K},
		{"guesses", got.Guesses, want.Guesses}, {"right", got.Right, want.Right}, {"log loss", got.LogLoss, want.LogLoss},
		{"recall of layer 0", e.Layers[0].AtK, 0.5}, // all scores are 0, so experts 0 and 1 are first
	} {
		if !near(c.got, c.want) {
			t.Errorf("%s: got %v, want %v", c.what, c.got, c.want)
		}
	}
	if p, ok := got.Precision(); !ok || !near(p, 1.0/3) {
		t.Errorf("precision: got %v, %v, want 1/3", p, ok)
	}
	if p, ok := e.Layers[0].Precision(); ok {
		t.Errorf("precision of layer 0: got %v, want none: nothing was scored 0.5", p)
	}
	if e.Tokens != 2 || e.Overall != e.Layers[1] || len(e.ColdStart) != 0 || len(e.Ahead) != 0 {
		t.Errorf("got %d tokens, cold start %v, ahead %v, overall %+v, want 2, none, none, and layer 1's", e.Tokens, e.ColdStart, e.Ahead, e.Overall)
	}
	checkBins(t, e.Calibration)
}

// checkBins holds the calibration of TestEvaluateByHand.
func checkBins(t *testing.T, c Calibration) {
	t.Helper()
	want := map[int]Bin{0: {6, 0, 0}, 2: {2, 0.2, 0.5}, 4: {2, 0.4, 0.5}, 6: {2, 0.6, 0.5}, 8: {2, 0.8, 0}, 9: {2, 0.9, 0.5}}
	for i, got := range c.Bins {
		w := want[i]
		if got.Count != w.Count || !near(got.Score, w.Score) || !near(got.Used, w.Used) {
			t.Errorf("bin %d: got %+v, want %+v", i, got, w)
		}
	}
	if want := 2 * (0.3 + 0.1 + 0.1 + 0.8 + 0.4) / 16; !near(c.Error, want) {
		t.Errorf("calibration error: got %v, want %v", c.Error, want)
	}
}

// TestEvaluateAhead: scores are right from so many layers before on, and never
// when nothing was observed.
func TestEvaluateAhead(t *testing.T) {
	shape := layout.Shape{Layers: 4, Experts: 8, TopK: 1}
	tr := rows(t, shape, []int32{4, 5, 6, 7}, []int32{4, 5, 6, 7})
	p := func(reach, least int) Predictor {
		return &scripted{rule: func(_, observed, layer int, dst []float32) {
			if observed >= least && layer-observed < reach {
				dst[4+layer] = 1
			}
		}}
	}
	for _, c := range []struct {
		what string
		p    Predictor
		want []float64 // of 1, 2, 3 layers ahead and before the pass
	}{
		{"reach of 1", p(1, 1), []float64{1, 0, 0, 0}},
		{"reach of 2", p(2, 1), []float64{1, 1, 0, 0}},
		{"reach of 2 after two layers", p(2, 2), []float64{2. / 3, 1. / 2, 0, 0}},
		{"before the pass too", p(3, 0), []float64{1, 1, 1, 2. / 3}},
	} {
		e, err := Evaluate(t.Context(), c.p, tr, EvalOptions{Ahead: []int{1, 2, 3, BeforePass}})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range c.want {
			if got := e.Ahead[i]; got.Layers != []int{1, 2, 3, BeforePass}[i] || !near(got.AtK, want) {
				t.Errorf("%s: got %+v, want recall %v", c.what, got, want)
			}
		}
		if !near(e.Overall.AtK, e.Ahead[0].AtK) {
			t.Errorf("%s: got %v overall and %v one layer ahead, want the same", c.what, e.Overall.AtK, e.Ahead[0].AtK)
		}
	}
}

func TestEvaluateColdStartAndWarm(t *testing.T) {
	shape := layout.Shape{Layers: 2, Experts: 8, TopK: 1}
	var all [][]int32
	for range 300 {
		all = append(all, []int32{7, 7})
	}
	tr := rows(t, shape, all...)
	late := func() *scripted { // right from the 26th pass on
		return &scripted{rule: func(pass, _, _ int, dst []float32) {
			if pass >= 25 {
				dst[7] = 1
			}
		}}
	}
	cold, err := Evaluate(t.Context(), late(), tr, EvalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := []ColdStart{{50, 0.5}, {200, 0.875}}; !slices.Equal(cold.ColdStart, want) || !near(cold.Overall.AtK, 275./300) {
		t.Errorf("cold start: got %v and %v in all, want %v and 275/300", cold.ColdStart, cold.Overall.AtK, want)
	}
	warm := late()
	e, err := Evaluate(t.Context(), warm, tr, EvalOptions{Warm: 20, MaxTokens: 50})
	if err != nil {
		t.Fatal(err)
	}
	if want := []ColdStart{{50, 0.9}}; !slices.Equal(e.ColdStart, want) || e.Tokens != 50 || len(warm.ids) != 70 {
		t.Errorf("warm: got %v over %d tokens in %d passes, want %v over 50 in 70", e.ColdStart, e.Tokens, len(warm.ids), want)
	}
	if !warm.ids[0] || !warm.ids[69] {
		t.Error("token ids: got none, want them told")
	}
}

// TestCalibrationOfOneWhoKnows: experts are used with the very probabilities
// that were scored.
func TestCalibrationOfOneWhoKnows(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 32, TopK: 32}
	rng := rand.New(rand.NewPCG(7, 7))
	const n = 2000
	truth := make([][]float32, n)
	var all [][]int32
	for i := range truth {
		row := make([]int32, 0, shape.TopK)
		for e := range shape.Experts {
			p := rng.Float32()
			truth[i] = append(truth[i], p)
			if rng.Float32() < p {
				row = append(row, int32(e))
			}
		}
		for len(row) < shape.TopK {
			row = append(row, -1)
		}
		all = append(all, row)
	}
	tr := rows(t, shape, all...)
	eval := func(bent float64) Calibration {
		e, err := Evaluate(t.Context(), &scripted{rule: func(pass, _, _ int, dst []float32) {
			for i, p := range truth[pass] {
				dst[i] = float32(math.Pow(float64(p), bent))
			}
		}}, tr, EvalOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return e.Calibration
	}
	c := eval(1)
	var count int64
	for i, b := range c.Bins {
		count += b.Count
		if math.Abs(b.Used-b.Score) > 0.03 || math.Abs(b.Score-(float64(i)+0.5)/10) > 0.01 {
			t.Errorf("bin %d: got %+v, want as many used as scored", i, b)
		}
	}
	if count != n*32 || c.Error > 0.01 {
		t.Errorf("got an error of %v over %d scores, want little over %d", c.Error, count, n*32)
	}
	if bent := eval(2); bent.Error < 0.1 {
		t.Errorf("squared probabilities: got an error of %v, want more than 0.1", bent.Error)
	}
}

// TestEvaluateCost: a clock that goes on by a microsecond each time it is read.
func TestEvaluateCost(t *testing.T) {
	now := time.Unix(0, 0)
	clock := func() time.Time { now = now.Add(time.Microsecond); return now }
	tr := recorded(small, synthetic(small, 10, 1), true)
	p, err := NewFrequency(small)
	if err != nil {
		t.Fatal(err)
	}
	e, err := Evaluate(t.Context(), p, tr, EvalOptions{Now: clock, Warm: 4})
	if err != nil {
		t.Fatal(err)
	}
	if want := (Cost{Score: time.Microsecond, Learn: time.Microsecond, Total: 48 * time.Microsecond}); e.Cost != want {
		t.Errorf("got %+v, want %+v", e.Cost, want)
	}
}

func TestEvaluateInvariants(t *testing.T) {
	passes := synthetic(small, 300, 4)
	tr := recorded(small, passes, true)
	for _, p := range every(t, small, passes) {
		e, err := Evaluate(t.Context(), p, tr, EvalOptions{Ahead: []int{1, 3, BeforePass}, Warm: 30})
		if err != nil {
			t.Fatal(err)
		}
		var scores int64
		for _, b := range e.Calibration.Bins {
			scores += b.Count
		}
		if want := int64(270 * 3 * small.Experts); scores != want {
			t.Errorf("%s: got %d scores in the bins, want %d", p.Name(), scores, want)
		}
		for l, r := range append(e.Layers, e.Overall) {
			if !(0 <= r.AtK && r.AtK <= r.At1p5K && r.At1p5K <= r.At2K && r.At2K <= 1 && r.Right <= r.Guesses && r.LogLoss >= 0) {
				t.Errorf("%s, layer %d: got %+v, want recall to rise within 0 and 1", p.Name(), l, r)
			}
		}
		if p.Name() == "oracle" && (e.Overall.At2K != 1 || e.Ahead[2].AtK != 1 || e.Calibration.Error != 0) {
			t.Errorf("oracle: got %+v, %+v, error %v, want all right", e.Overall, e.Ahead, e.Calibration.Error)
		}
	}
}

func TestEvaluateErrors(t *testing.T) {
	tr := recorded(small, synthetic(small, 100, 1), true)
	p, err := NewFrequency(small)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []EvalOptions{{MaxTokens: -1}, {Warm: -1}, {Warm: 100}, {Ahead: []int{-1}}, {Ahead: []int{1, 4}}} {
		if _, err := Evaluate(t.Context(), p, tr, o); !errors.Is(err, ErrOption) {
			t.Errorf("%+v: got %v, want ErrOption", o, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	var told []int
	_, err = Evaluate(ctx, p, tr, EvalOptions{Progress: func(n int) {
		if told = append(told, n); n > 0 {
			cancel(stop)
		}
	}})
	if !errors.Is(err, stop) || !slices.Equal(told, []int{0, 64}) {
		t.Errorf("cancelled at token 64: got %v after progress %v, want %v after 0 and 64", err, told, stop)
	}
}
