package train

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"outrider/layout"
	"outrider/router"
	"outrider/router/learned"
	"outrider/trace"
)

// TestLearns: over an online predictor that starts from nothing the network
// knows what it was trained on, and beats it on sequences that training never saw.
func TestLearns(t *testing.T) {
	tr := generated(t, 1500, 15, 1)
	before, after := cut(t, tr, 1000, 1000)
	m, r := trained(t, Options{Epochs: 6}, before)
	if r.Best == 0 || r.Loss() >= r.Start {
		t.Errorf("got best epoch %d of %+v, start %.4f, want one better than the start", r.Best, r.Epochs, r.Start)
	}
	loss := func(p router.Predictor, err error) float64 {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return evaluated(t, p, after).LogLoss
	}
	online, over := loss(router.New("online", small)), loss(learned.New(m))
	if over > 0.99*online {
		t.Errorf("log loss on unseen sequences: got %.4f, want clearly less than %.4f of the online predictor", over, online)
	}
	if r.Model != m.Name() || r.Split != "sequence" || r.TrainSequences != 8 || r.HeldOutSequences != 2 ||
		r.TrainTokens+r.HeldOutTokens != before.Len() || r.TrainExamples != 2*3*r.TrainTokens || r.HeldOutExamples != 2*3*r.HeldOutTokens {
		t.Errorf("got %+v, want a report of ten sequences, every layer of them an example", r)
	}
	if len(r.Comparisons) != 6 {
		t.Fatalf("got %d comparisons, want three horizons, cold and warm", len(r.Comparisons))
	}
	if c := r.Comparisons[0]; c.Horizon != "near" || c.Warm || c.LearnedLogLoss >= c.OnlineLogLoss {
		t.Errorf("got %+v, want near and cold first, and better than online", c)
	}
}

func TestReproducible(t *testing.T) {
	tr := generated(t, 300, 5, 1)
	o := Options{Epochs: 2, Seed: 7}
	first, r := trained(t, o, tr)
	second, s := trained(t, o, tr)
	if !bytes.Equal(bytesOf(t, first), bytesOf(t, second)) || r.Epochs[1] != s.Epochs[1] {
		t.Error("the same seed: got another network")
	}
	o.Seed = 8
	if third, _ := trained(t, o, tr); bytes.Equal(bytesOf(t, first), bytesOf(t, third)) {
		t.Error("another seed: got the same network")
	}
}

// TestForwardEqualsGorgonia: what ships computes what was trained.
func TestForwardEqualsGorgonia(t *testing.T) {
	f := fitOf(t, generated(t, 200, 4, 3), Options{Epochs: 2, Batch: 8})
	if _, err := f.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, err := f.model()
	if err != nil {
		t.Fatal(err)
	}
	s, got, n := m.NewScratch(), make([]float32, small.Experts), 0
	for _, batch := range f.batches() {
		layer := int(f.train.layers[batch[0]])
		f.network.fill(f.train, &f.spread, batch)
		loss, err := f.network.step(f.layers[layer])
		if err != nil {
			t.Fatal(err)
		}
		odds := f.network.odds.Data().([]float32)
		var mean float64
		for b, i := range batch {
			e := f.train.at(i)
			copy(s.Columns(), e.columns)
			m.LogOdds(layer, e.view, s, got)
			mean += logLoss(got, e.used) / float64(len(batch))
			for k, z := range got {
				if want := odds[b*small.Experts+k]; math.Abs(float64(z-want)) > 1e-5*max(1, math.Abs(float64(want))) {
					t.Fatalf("example %d expert %d: got %v, gorgonia %v", i, k, z, want)
				}
				n++
			}
		}
		if math.Abs(mean-float64(loss)) > 1e-5 {
			t.Errorf("loss: got %v, gorgonia %v", mean, loss)
		}
	}
	if n < 1000 {
		t.Errorf("compared %d forecasts, want them all", n)
	}
}

// TestStartIsOnline: before training the forecast is that of the online predictor,
// and where no epoch is better it stays that.
func TestStartIsOnline(t *testing.T) {
	f := fitOf(t, generated(t, 200, 4, 3), Options{})
	f.begin()
	m, err := f.model()
	if err != nil {
		t.Fatal(err)
	}
	forecast(m, f.held.warm, func(e *example, odds []float32) {
		online := e.columns[len(e.columns)-len(odds):]
		for k := range odds {
			if d := math.Abs(float64(odds[k] - online[k])); d > 1e-4 {
				t.Fatalf("expert %d: got %v, want %v", k, odds[k], online[k])
			}
		}
	})
}

// TestGradients compares those of Gorgonia with differences of the loss.
func TestGradients(t *testing.T) {
	f := fitOf(t, generated(t, 120, 4, 3), Options{Batch: 16})
	f.begin()
	random := rand.New(rand.NewPCG(2, 2))
	for _, i := range []int{weightOutput, weightBefore, weightAgain, weightTarget} {
		for k := range f.layers[1].at(i) {
			f.layers[1].at(i)[k] = float32(random.NormFloat64())
		}
	}
	var batch []int
	for _, b := range f.batches() {
		if f.train.layers[b[0]] == 1 {
			batch = b
		}
	}
	f.network.fill(f.train, &f.spread, batch)
	step := func() float64 {
		t.Helper()
		loss, err := f.network.step(f.layers[1])
		if err != nil {
			t.Fatal(err)
		}
		return float64(loss)
	}
	step()
	for i, node := range f.network.nodes {
		grad, err := node.Grad()
		if err != nil {
			t.Fatal(err)
		}
		g := clone(grad.Data().([]float32))
		at := 0
		for k := range g {
			if math.Abs(float64(g[k])) > math.Abs(float64(g[at])) {
				at = k
			}
		}
		x, old := f.layers[1].at(i), f.layers[1].at(i)[at]
		const h = 0.004
		x[at] = old + h
		above := step()
		x[at] = old - h
		below := step()
		x[at] = old
		if got, want := float64(g[at]), (above-below)/(2*h); math.Abs(got-want) > 0.05*math.Abs(want)+1e-4 {
			t.Errorf("weight %d, number %d: got gradient %v, want %v", i, at, got, want)
		}
		step()
	}
}

// TestColumnsThatNeverMoved carry no weight: a network trained without token ids
// is not confused by them.
func TestColumnsThatNeverMoved(t *testing.T) {
	tr := generated(t, 300, 5, 1)
	for i := range tr.Tokens {
		tr.Tokens[i] = -1
	}
	f := fitOf(t, tr, Options{Epochs: 2})
	m, err := f.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	still := 0
	for c, active := range f.spread.active {
		if active {
			continue
		}
		still++
		for l, layer := range m.Parameters().Layers {
			if layer.Skip[c] != 0 {
				t.Errorf("layer %d, column %d: got skip %v, want 0", l, c, layer.Skip[c])
			}
			for unit := range m.Dims().Hidden {
				if w := layer.Hidden[unit*learned.Inputs()+c]; w != 0 {
					t.Errorf("layer %d, column %d, unit %d: got %v, want 0", l, c, unit, w)
				}
			}
		}
	}
	if still == 0 {
		t.Error("got no column that never moved, want those of the token ids")
	}
}

func TestEarlyStopping(t *testing.T) {
	_, r := trained(t, Options{Epochs: 60, Patience: 2, Rate: 0.05}, generated(t, 200, 5, 2))
	if n := len(r.Epochs); n >= 60 || n != r.Best+2 {
		t.Errorf("got %d epochs, the best %d, want two after the best", n, r.Best)
	}
}

// TestNothingToLearn: on uniform routing a network may not make the forecast worse.
func TestNothingToLearn(t *testing.T) {
	tr := &trace.Trace{Header: trace.Header{Model: "uniform", Shape: small}}
	random := rand.New(rand.NewPCG(1, 1))
	for i := range 400 {
		a := trace.Activation{Seq: int64(i / 50), Pos: int64(i % 50), Token: -1}
		for range small.Layers {
			for _, e := range random.Perm(small.Experts)[:small.TopK] {
				a.Experts = append(a.Experts, int32(e))
			}
		}
		if err := tr.Append(&a); err != nil {
			t.Fatal(err)
		}
	}
	_, r := trained(t, Options{Epochs: 3}, tr)
	if r.Loss() > r.Start {
		t.Errorf("held-out loss: got %v, want at most %v of the start", r.Loss(), r.Start)
	}
}

func TestCancel(t *testing.T) {
	for _, stage := range []Stage{Replaying, Learning} {
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		m, _, err := Train(ctx, []*trace.Trace{generated(t, 300, 5, 1)}, Options{Progress: func(p Progress) {
			if p.Stage == stage && p.Done > p.Total/2 {
				cancel(gone)
			}
			if p.Stage > stage {
				t.Errorf("stage %d after the end in stage %d", p.Stage, stage)
			}
		}})
		if !errors.Is(err, gone) || m != nil {
			t.Errorf("stage %d: got %v, want the context's cause", stage, err)
		}
	}
}

func TestProgress(t *testing.T) {
	var last [2]Progress
	trained(t, Options{Epochs: 2, Progress: func(p Progress) {
		if p.Done < 1 || p.Done > p.Total {
			t.Errorf("got %d of %d", p.Done, p.Total)
		}
		last[p.Stage] = p
	}}, generated(t, 200, 5, 1))
	for stage, p := range last {
		if p.Done != p.Total {
			t.Errorf("stage %d: got %d of %d at the end, want all", stage, p.Done, p.Total)
		}
	}
	if e := last[Learning].Epoch; e == nil || e.Epoch != 1 {
		t.Errorf("in the second epoch: got %+v of the one before", e)
	}
}

func TestErrors(t *testing.T) {
	tr := generated(t, 200, 5, 1)
	other := generated(t, 200, 5, 1)
	other.Header.Shape.Experts++
	one := generated(t, 20, 4, 1)
	huge := &trace.Trace{Header: trace.Header{Shape: layout.Shape{Layers: 64, Experts: 4096, TopK: 1}},
		Seqs: make([]int64, 100), Tokens: make([]int32, 100), Pos: make([]int64, 100), Phases: make([]trace.Phase, 100), Experts: make([]int32, 6400)}
	for _, c := range []struct {
		name   string
		traces []*trace.Trace
		o      Options
		want   error
	}{
		{"no trace", nil, Options{}, ErrTooLittle},
		{"few tokens", []*trace.Trace{one}, Options{}, ErrTooLittle},
		{"shapes", []*trace.Trace{tr, other}, Options{}, router.ErrShape},
		{"too large", []*trace.Trace{huge}, Options{}, router.ErrShape},
		{"hold out all", []*trace.Trace{tr}, Options{HoldOut: 1}, ErrOption},
		{"hold out NaN", []*trace.Trace{tr}, Options{HoldOut: math.NaN()}, ErrOption},
		{"epochs", []*trace.Trace{tr}, Options{Epochs: -1}, ErrOption},
		{"patience", []*trace.Trace{tr}, Options{Patience: -1}, ErrOption},
		{"batch", []*trace.Trace{tr}, Options{Batch: 5000}, ErrOption},
		{"rate", []*trace.Trace{tr}, Options{Rate: 2}, ErrOption},
		{"hidden", []*trace.Trace{tr}, Options{Hidden: 257}, ErrOption},
		{"embedding", []*trace.Trace{tr}, Options{Embedding: 65}, ErrOption},
		{"memory", []*trace.Trace{tr}, Options{MemoryBytes: -1}, ErrOption},
	} {
		if m, _, err := Train(t.Context(), c.traces, c.o); !errors.Is(err, c.want) || m != nil {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
}
