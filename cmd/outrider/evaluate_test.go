package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"outrider/layout"
	"outrider/router"
	"outrider/router/learned"
	"outrider/trace"
)

// times are the last two columns of the table, in rows that begin with a name.
var times = regexp.MustCompile(`(?m)^([a-z].*%.*\d\.\d{4}) +[0-9.]+ +[0-9.]+$`)

func TestEvaluateGolden(t *testing.T) {
	golden(t, "help-evaluate", succeed(t, "evaluate", "--help"))
	unchanged(t, func() {
		// Yardsticks only, and room for all: forecasts and keep values may get better.
		text := succeed(t, "evaluate", otherTrace, "--predictors", "recency,frequency,oracle", "--warm", "10%", "--ahead", "1,4", "--ahead", "token",
			"--per-layer", "--calibration", "--cache", "768 experts")
		golden(t, "evaluate", times.ReplaceAllString(text, "$1  (time)  (time)"))
	}, otherTrace)
}

func TestEvaluateHelpStatesJSONAndStatuses(t *testing.T) {
	help := succeed(t, "evaluate", "--help")
	for _, want := range append(router.Names(), "--json", "Exit status:", "130  interrupted") {
		if !strings.Contains(help, want) {
			t.Errorf("got no %q, want it", want)
		}
	}
}

func TestEvaluateJSON(t *testing.T) {
	text := succeed(t, "evaluate", tinyTrace, "--max-tokens", "300", "--predictors", "frequency", "--json")
	at := 0
	for _, key := range []string{"trace", "path", "model", "layers", "experts", "top_k", "tokens", "rows", "predictor", "recall_at_k", "recall_at_1_5k", "recall_at_2k", "precision", "miss_coverage",
		"layer_complete_rate", "log_loss", "score_us", "learn_us", "layers", "layer", "token_ids", "guesses", "hits", "calibration", "bins", "cold_start", "seconds", "warm_tokens", "cache_experts", "cache_share"} {
		found := strings.Index(text[at:], `"`+key+`":`)
		if found < 0 {
			t.Fatalf("got no %q after byte %d of\n%s", key, at, text)
		}
		at += found
	}
}

func TestEvaluateOnline(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "p.png")
	e := decode[evaluation](t, "evaluate", tinyTrace, "--max-tokens", "300", "--predictors", "online,transition", "--token-ids", "both", "--plot", plot)
	var names []string
	for _, r := range e.Rows {
		names = append(names, r.Predictor)
		if r.ScoreMicros <= 0 || r.LearnMicros <= 0 || r.Seconds <= 0 || len(r.Layers) != 8 || len(r.ColdStart) != 2 || len(r.Ahead) != 0 {
			t.Errorf("%s: got %+v, want times, 8 layers, a cold start of two entries and nothing further ahead", r.Predictor, r)
		}
	}
	if want := []string{"online", "online, no ids", "transition", "transition, no ids"}; !slices.Equal(names, want) {
		t.Fatalf("got rows %q, want %q", names, want)
	}
	online, hidden, transition := e.Rows[0], e.Rows[1], e.Rows[2]
	if online.RecallAtK <= transition.RecallAtK || *online.MissCoverage <= *transition.MissCoverage || online.Layers[0].RecallAtK < hidden.Layers[0].RecallAtK+0.1 {
		t.Errorf("got online %+v, without ids %+v, transition %+v, want the first to be the best", online.Figures, hidden.Figures, transition.Figures)
	}
	if e.Trace.Tokens != 300 || e.CacheExperts != 64 || e.CacheShare != 0.25 {
		t.Errorf("got %d tokens, cache %d, want 300 and 64", e.Trace.Tokens, e.CacheExperts)
	}
	if info, err := os.Stat(plot); err != nil || info.Size() < 1000 {
		t.Errorf("the plot: got %v, want a picture", err)
	}
	if hidden := decode[evaluation](t, "evaluate", tinyTrace, "--max-tokens", "60", "--predictors", "frequency", "--token-ids", "no"); len(hidden.Rows) != 1 ||
		hidden.Rows[0].Predictor != "frequency" || hidden.Rows[0].TokenIDs {
		t.Errorf("--token-ids no: got %+v, want one row, told no ids", hidden.Rows)
	}
}

// TestEvaluateWarm: the share is of the whole trace, and the tokens are those after it.
func TestEvaluateWarm(t *testing.T) {
	for args, want := range map[string][2]int{"--warm 20%": {409, 1639}, "--warm 0.5 --max-tokens 100": {1024, 100}, "--max-tokens 100": {0, 100}} {
		e := decode[evaluation](t, append([]string{"evaluate", tinyTrace, "--predictors", "frequency"}, strings.Fields(args)...)...)
		if got := [2]int{e.WarmTokens, e.Trace.Tokens}; got != want {
			t.Errorf("%s: got %v tokens to warm up and counted, want %v", args, got, want)
		}
	}
}

// network writes one that leaves the forecast of online as it is, and returns its
// path.
func network(t *testing.T, shape layout.Shape) string {
	t.Helper()
	d := learned.Dims{Shape: shape, Embedding: 1, Hidden: 1}
	columns := router.FeatureColumns()
	p := learned.Parameters{Centre: make([]float32, columns+1), Scale: slices.Repeat([]float32{1}, columns+1)}
	for range shape.Layers {
		set := make([]float32, shape.Experts)
		l := learned.Layer{Hidden: make([]float32, learned.Inputs()), Skip: make([]float32, learned.Inputs()), Output: make([]float32, 1), Before: set, Again: set, Target: set}
		l.Skip[columns-1] = 1
		p.Layers = append(p.Layers, l)
	}
	m, err := learned.NewModel("m", d, p)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.learned")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.Save(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEvaluateLearned(t *testing.T) {
	path := network(t, layout.Shape{Layers: 8, Experts: 32, TopK: 4})
	for _, c := range []struct{ predictors, want string }{{"learned,online", "learned"}, {"online", "online"}} {
		e := decode[evaluation](t, "evaluate", tinyTrace, "--max-tokens", "50", "--predictors", c.predictors, "--learned", path)
		if len(e.Rows) != 2 || e.Rows[0].Predictor != c.want || e.Rows[0].Predictor == e.Rows[1].Predictor {
			t.Fatalf("%s: got %d rows, the first of %s, want online and learned", c.predictors, len(e.Rows), e.Rows[0].Predictor)
		}
		if a, b := e.Rows[0].RecallAtK, e.Rows[1].RecallAtK; math.Abs(a-b) > 1e-3 {
			t.Errorf("%s: got recall %v and %v, want the same: the network changes nothing", c.predictors, a, b)
		}
	}
	got := invoke(t, "evaluate", otherTrace, "--learned", path)
	if got.status != exitInput || !strings.Contains(got.stderr, "8 layers x 32 experts, top 4; the trace has 24 x 32, top 4") {
		t.Errorf("another model's trace: got status %d, %q, want 3 and both shapes", got.status, got.stderr)
	}
	got = invoke(t, "evaluate", tinyTrace, "--learned", tinyTrace)
	if got.status != exitInput || !strings.HasPrefix(got.stderr, "outrider: --learned "+tinyTrace+": not a learned forecast") {
		t.Errorf("no network: got status %d, %q, want 3 and the file", got.status, got.stderr)
	}
}

func TestEvaluateState(t *testing.T) {
	in, err := trace.OpenFile(tinyTrace)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	tr, err := trace.ReadAll(in, 300)
	if err != nil {
		t.Fatal(err)
	}
	p, err := router.New("transition", tr.Header.Shape)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := router.Evaluate(t.Context(), p, tr, router.EvalOptions{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(router.Save(out, p), out.Close()); err != nil {
		t.Fatal(err)
	}
	unchanged(t, func() {
		e := decode[evaluation](t, "evaluate", tinyTrace, "--max-tokens", "100", "--predictors", "transition", "--state", path)
		if len(e.Rows) != 2 || e.Rows[1].Predictor != "transition, saved" || e.Rows[1].RecallAtK <= e.Rows[0].RecallAtK {
			t.Errorf("got %+v, want a row of transition and a better one with what it learned", e.Rows)
		}
	}, path)
	for _, c := range []struct{ trace, state, want string }{
		{otherTrace, path, "8 layers × 32 experts, top 4, and is wanted for 24 layers"}, {tinyTrace, tinyTrace, "not a saved forecast"}, {tinyTrace, path + "x", "no such file"},
	} {
		if got := invoke(t, "evaluate", c.trace, "--state", c.state); got.status != exitInput || !strings.Contains(got.stderr, c.want) || !strings.Contains(got.stderr, c.state) {
			t.Errorf("%s with the state %s: got status %d, %q, want 3 and %q", c.trace, c.state, got.status, got.stderr, c.want)
		}
	}
}

func TestEvaluateErrors(t *testing.T) {
	folder := t.TempDir()
	text := filepath.Join(folder, "letter.txt")
	if err := os.WriteFile(text, []byte("Dear Sir, this is no trace.\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	counts := filepath.Join(folder, "counts.json")
	if err := os.WriteFile(counts, []byte(`{"kind":"histogram","model":"m","experts":3,"layers":2,"prompts":4,"prompts_using_expert":[[1,2,3],[4,0,2]]}`), 0o666); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, c := range []struct {
		status int
		args   []string
	}{
		{exitInput, []string{text}},
		{exitInput, []string{filepath.Join(folder, "missing")}},
		{exitInput, []string{counts}},
		{exitUsage, []string{otherTrace, "--predictors", "online,online"}},
		{exitUsage, []string{otherTrace, "--predictors", "learned"}},
		{exitInput, []string{otherTrace, "--learned", filepath.Join(folder, "missing")}},
		{exitUsage, []string{otherTrace, "--ahead", "0"}},
		{exitUsage, []string{otherTrace, "--ahead", "24"}},
		{exitUsage, []string{otherTrace, "--warm", "100%"}},
		{exitUsage, []string{otherTrace, "--warm", "120%"}},
		{exitUsage, []string{otherTrace, "--max-tokens=-1"}},
		{exitUsage, []string{otherTrace, "--cache", "4GiB"}},
		{exitUsage, []string{otherTrace, "--cache", "3 experts"}},
		{exitUsage, []string{otherTrace, "--plot", "recall.pdf"}},
		{exitUsage, []string{otherTrace, "--token-ids", "some"}},
		{exitInput, []string{otherTrace, "--token-ids", "both"}},
		{exitUsage, []string{}},
	} {
		got := invoke(t, append([]string{"evaluate"}, c.args...)...)
		line := strings.Join(c.args, " ")
		if got.status != c.status {
			t.Errorf("outrider evaluate %s: got status %d (%s), want %d", line, got.status, got.stderr, c.status)
		}
		if n := strings.Count(got.stderr, "\n"); n != 1 || !strings.HasPrefix(got.stderr, "outrider: ") || got.stdout != "" {
			t.Errorf("outrider evaluate %s: got %q and %q, want one line from outrider on stderr", line, got.stderr, got.stdout)
		}
		fmt.Fprintf(&out, "$ outrider evaluate %.150s\n%s[%d]\n\n", settle(line, folder), settle(got.stderr, folder), got.status)
	}
	golden(t, "evaluate-errors", out.String())
}

func TestEvaluateUnknownPredictor(t *testing.T) {
	got := invoke(t, "evaluate", otherTrace, "--predictors", "online,best")
	for _, want := range append(router.Names(), `"best"`, "oracle", "learned") {
		if got.status != exitUsage || !strings.Contains(got.stderr, want) {
			t.Errorf("got status %d, %q, want 2 and %s", got.status, got.stderr, want)
		}
	}
}

func TestEvaluateInterrupted(t *testing.T) {
	ctx, out := canceller(t)
	out.cancel()
	if status := run(ctx, []string{"evaluate", tinyTrace}, out, out); status != exitInterrupted {
		t.Errorf("got status %d, want 130", status)
	}
}
