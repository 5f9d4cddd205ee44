package evaluate

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"outrider/internal/sim"
	"outrider/internal/testfiles"
	"outrider/layout"
	"outrider/router"
	"outrider/trace"
)

// fixed scores each layer the same at all times.
type fixed [][]float32

func (f fixed) Name() string                   { return "fixed" }
func (f fixed) NewHistory() router.History     { return f }
func (f fixed) Begin(trace.Phase, []int32)     {}
func (f fixed) Observe(int, []router.Choice)   {}
func (f fixed) Score(layer int, dst []float32) { copy(dst, f[layer]) }

func sample(t testing.TB, shape layout.Shape, rows ...[]int32) *trace.Trace {
	t.Helper()
	tr, err := trace.NewTrace(trace.Header{Model: "m", Shape: shape, Tokens: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range rows {
		if err := tr.Append(&trace.Activation{Pos: int64(i), Phase: trace.Decode, Token: int32(i), Experts: row}); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

// shipped is the beginning of a recorded trace.
func shipped(t testing.TB, name string, tokens int) *trace.Trace {
	t.Helper()
	f, err := trace.OpenFile(testfiles.Root(t) + "/testdata/traces/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tr, err := trace.ReadAll(f, tokens)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func named(name string) Entry {
	return Entry{Name: name, New: func(t *trace.Trace) (router.Predictor, error) {
		if name == "oracle" {
			return router.NewOracle(t.Header.Shape, t)
		}
		return router.New(name, t.Header.Shape)
	}}
}

// TestCacheByHand: one layer of four experts, top 1, room for two. Scores are 0.1,
// 0.4, 0.2, 0.3 at all times, so that what goes is the lower scored of the two in
// memory that is not in use.
func TestCacheByHand(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 4, TopK: 1}
	tr := sample(t, shape, []int32{1}, []int32{2}, []int32{3}, []int32{0}, []int32{1}, []int32{3}, []int32{0})
	p := fixed{{0.1, 0.4, 0.2, 0.3}}
	// use  in memory before  guess  miss  covered
	//  1   -                 1      yes   yes
	//  2   1                 3      yes   no
	//  3   1 2               3      yes   yes      2 goes
	//  0   1 3               2      yes   no       3 goes
	//  1   0 1               3      no
	//  3   0 1               3      yes   yes      0 goes
	//  0   1 3               2      yes   no       3 goes
	got, err := Cache(t.Context(), p, tr, CacheOptions{Experts: 2})
	if err != nil {
		t.Fatal(err)
	}
	if want := (Counts{Executions: 7, Used: 7, Misses: 6, Covered: 3, Complete: 4}); len(got) != 1 || got[0] != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	got, err = Cache(t.Context(), p, tr, CacheOptions{Share: 0.5, Warm: 3, MaxTokens: 3})
	if err != nil {
		t.Fatal(err)
	}
	if want := (Counts{Executions: 3, Used: 3, Misses: 2, Covered: 1, Complete: 2}); got[0] != want {
		t.Errorf("after three tokens of warming up: got %+v, want %+v", got[0], want)
	}
	if share, ok := got[0].MissCoverage(); !ok || share != 0.5 || got[0].CompleteRate() != 2./3 || math.Abs(got[0].Hits()-1./3) > 1e-12 {
		t.Errorf("got coverage %v, complete %v, hits %v, want 1/2, 2/3, 1/3", share, got[0].CompleteRate(), got[0].Hits())
	}
	if _, ok := (Counts{Executions: 1, Used: 1, Complete: 1}).MissCoverage(); ok {
		t.Error("no misses: got a coverage, want none")
	}
}

// TestHitsAreTheSimulations: the cache keeps as the simulation does.
func TestHitsAreTheSimulations(t *testing.T) {
	tr := shipped(t, "tinymoe-2000.jsonl.gz", 200)
	for _, name := range []string{"online", "transition", "recency", "frequency"} {
		run := name
		if name == "recency" {
			run = "decayed"
		}
		want, err := sim.Run(t.Context(), tr, run, sim.Options{CacheShare: 0.25, Horizon: 1})
		if err != nil {
			t.Fatal(err)
		}
		row, err := Run(t.Context(), tr, named(name), Options{Cache: CacheOptions{Share: 0.25}})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(row.Hits-want.Hits) > 1e-12 {
			t.Errorf("%s: got hits %v, the simulation has %v, want the same", name, row.Hits, want.Hits)
		}
		if math.Abs(row.RecallAtK-want.RecallAtK) > 1e-9 {
			t.Errorf("%s: got recall %v, the simulation has %v, want the same", name, row.RecallAtK, want.RecallAtK)
		}
		if row.LayerCompleteRate <= want.LayerCompleteRate {
			t.Errorf("%s: got %v complete with guesses, the simulation has %v without, want more", name, row.LayerCompleteRate, want.LayerCompleteRate)
		}
	}
}

func TestInvariants(t *testing.T) {
	tr := shipped(t, "gpt-oss-20b-300.jsonl.gz", 80)
	for _, name := range append(router.Names(), "oracle") {
		r, err := Run(t.Context(), tr, named(name), Options{Cache: CacheOptions{Share: 0.25, Warm: 30}, Ahead: []int{2, router.BeforePass}})
		if err != nil {
			t.Fatal(err)
		}
		if !(r.RecallAtK <= r.RecallAt1p5K && r.RecallAt1p5K <= r.RecallAt2K && r.RecallAt2K <= 1) {
			t.Errorf("%s: got recall %v, %v, %v, want it to rise to at most 1", name, r.RecallAtK, r.RecallAt1p5K, r.RecallAt2K)
		}
		if *r.MissCoverage < 0 || *r.MissCoverage > 1 || r.LayerCompleteRate > 1 || len(r.Layers) != 24 || r.TokenIDs {
			t.Errorf("%s: got %+v", name, r.Figures)
		}
		if name == "oracle" && (r.RecallAtK != 1 || *r.Precision != 1 || *r.MissCoverage != 1 || r.LayerCompleteRate != 1 || r.Ahead[1].RecallAtK != 1) {
			t.Errorf("oracle: got %+v, ahead %+v, want all 1", r.Figures, r.Ahead)
		}
	}
}

// TestTokenIDs: withheld, they change what a predictor of tokens says, and the
// trace stays as it was.
func TestTokenIDs(t *testing.T) {
	tr := shipped(t, "tinymoe-2000.jsonl.gz", 400)
	before := slices.Clone(tr.Tokens)
	told, hidden := named("online"), named("online")
	hidden.Name, hidden.HideTokens = "online, no ids", true
	var rows []*Row
	for _, e := range []Entry{told, hidden} {
		r, err := Run(t.Context(), tr, e, Options{Cache: CacheOptions{Share: 0.25}})
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	if with, without := rows[0].Layers[0].RecallAtK, rows[1].Layers[0].RecallAtK; with < without+0.1 {
		t.Errorf("layer 0: got recall %v with token ids and %v without, want it clearly higher", with, without)
	}
	if !rows[0].TokenIDs || rows[1].TokenIDs || !slices.Equal(tr.Tokens, before) || !tr.Header.Tokens {
		t.Error("got the trace changed or the rows not marked")
	}
}

func TestRowJSON(t *testing.T) {
	shape := layout.Shape{Layers: 2, Experts: 4, TopK: 1}
	tr := sample(t, shape, []int32{0, 1}, []int32{0, 1})
	e := Entry{Name: "low", New: func(*trace.Trace) (router.Predictor, error) {
		return fixed{{0.1, 0, 0, 0}, {0, 0.1, 0, 0}}, nil
	}}
	now := time.Unix(0, 0)
	var progress []int
	r, err := Run(t.Context(), tr, e, Options{
		Cache: CacheOptions{Share: 1}, Ahead: []int{1, router.BeforePass},
		Now:      func() time.Time { now = now.Add(time.Microsecond); return now },
		Progress: func(n int) { progress = append(progress, n) },
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"predictor":"low","recall_at_k":1,"recall_at_1_5k":1,"recall_at_2k":1,"precision":null,"miss_coverage":1,"layer_complete_rate":1,"log_loss":LOSS,` +
		`"score_us":1,"learn_us":1,"layers":[{"layer":0,"recall_at_k":1,`
	if got := strings.Replace(string(text), jsonNumber(t, r.LogLoss), "LOSS", 1); !strings.HasPrefix(got, want) {
		t.Errorf("got %s, want it to begin with %s", got, want)
	}
	for _, want := range []string{`"token_ids":true,"guesses":0,"hits":0.5,"calibration":{"bins":[{"count":6,"score":0,"used":0},{"count":2,`,
		`"cold_start":[],"ahead":[{"layers":1,"recall_at_k":1},{"layers":"token","recall_at_k":1}],"seconds":0.000008}`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("got %s, want it to hold %s", text, want)
		}
	}
	if !slices.Equal(progress, []int{0, 2}) {
		t.Errorf("progress: got %v, want 0 and 2: the second replay begins", progress)
	}
}

func jsonNumber(t *testing.T, v float64) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestErrors(t *testing.T) {
	shape := layout.Shape{Layers: 2, Experts: 8, TopK: 2}
	tr := sample(t, shape, []int32{0, 1, 0, 1}, []int32{0, 1, 0, 1})
	for _, o := range []CacheOptions{{}, {Share: 1.1}, {Share: math.NaN()}, {Experts: 1}, {Share: 0.05}} {
		if _, err := Run(t.Context(), tr, named("frequency"), Options{Cache: o}); !errors.Is(err, ErrOption) {
			t.Errorf("%+v: got %v, want ErrOption", o, err)
		}
	}
	if n, err := (CacheOptions{Experts: 99}).Capacity(shape); n != 16 || err != nil {
		t.Errorf("more room than experts: got %d, %v, want 16", n, err)
	}
	if _, err := Run(t.Context(), tr, named("frequency"), Options{Cache: CacheOptions{Share: 1, Warm: 2}}); !errors.Is(err, router.ErrOption) {
		t.Errorf("all to warm up: got %v, want router.ErrOption", err)
	}
	broken := errors.New("no such thing")
	if _, err := Run(t.Context(), tr, Entry{New: func(*trace.Trace) (router.Predictor, error) { return nil, broken }}, Options{}); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p, err := router.New("frequency", shape)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Cache(ctx, p, tr, CacheOptions{Share: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want it to say so", err)
	}
}
