package lookeval

import (
	"fmt"
	"testing"

	"outrider/internal/testfiles"
	"outrider/internal/testtrace"
	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/router"
	"outrider/trace"
)

func online(tr *trace.Trace) func() (router.Predictor, error) {
	return func() (router.Predictor, error) { return router.New("online", tr.Header.Shape) }
}

// The look-ahead of a real model: alone as its README has measured it, and joined
// with the forecast from history better than either.
func TestLookaheadOfTinymoe(t *testing.T) {
	if raceEnabled {
		t.Skip("one goroutine: nothing to race, and it takes minutes")
	}
	tr := testtrace.Shared(t, "tinymoe/traces-small.jsonl.gz", 1<<20)
	in, err := Open(tr, testfiles.Shared(t, "tinymoe/traces-small.hidden.f16.bin"), testfiles.Shared(t, "tinymoe/gates.f32.bin"))
	if err != nil {
		t.Fatal(err)
	}
	if in.Width != 256 || tr.Len() != 3072 {
		t.Fatalf("got width %d and %d tokens, want 256 and 3072", in.Width, tr.Len())
	}
	report, err := Run(t.Context(), in, online(tr), Options{})
	if err != nil {
		t.Fatal(err)
	}
	recall := map[string]float64{}
	for _, r := range report.Rows {
		recall[fmt.Sprintf("%s %d", r.Source, r.Ahead)] = r.RecallAtK
		loss, wrong := 0.0, 0.0
		if r.LogLoss != nil {
			loss, wrong = *r.LogLoss, *r.CalibrationError
		}
		t.Logf("%-28s %d ahead: recall@K %.3f @1.5K %.3f @2K %.3f, log loss %.3f, calibration error %.4f", r.Source, r.Ahead, r.RecallAtK, r.RecallAt15K, r.RecallAt2K, loss, wrong)
		if wrong > 0.01 {
			t.Errorf("%s, %d ahead: calibration error %.4f, want at most 0.01", r.Source, r.Ahead, wrong)
		}
	}
	for d, want := range []float64{0.780, 0.700, 0.631} {
		if got := recall[fmt.Sprintf("lookahead %d", d+1)]; got < want-0.005 || got > want+0.005 {
			t.Errorf("look-ahead alone, %d ahead: recall %.3f, want %.3f as measured elsewhere", d+1, got, want)
		}
	}
	for d := 1; d <= 3; d++ {
		alone := recall[fmt.Sprintf("lookahead %d", d)]
		for _, history := range []string{"online", "online, no ids"} {
			joined := recall[fmt.Sprintf("%s + lookahead %d", history, d)]
			if joined < alone+0.03 || joined < recall[fmt.Sprintf("%s %d", history, d)]+0.03 {
				t.Errorf("%s and look-ahead, %d ahead: recall %.3f, want 0.03 more than either alone", history, d, joined)
			}
		}
	}
	if got := recall["online + lookahead 1"]; got < 0.80 {
		t.Errorf("online and look-ahead: recall %.3f, want at least 0.80", got)
	}
}

// The routers of the GGUF checkpoint are those of the file of gates: the same
// guesses follow.
func TestRoutersOfCheckpointGuessAlike(t *testing.T) {
	tr := testtrace.Shared(t, "tinymoe/traces-small.jsonl.gz", 1<<20)
	in, err := Open(tr, testfiles.Shared(t, "tinymoe/traces-small.hidden.f16.bin"), testfiles.Shared(t, "tinymoe/gates.f32.bin"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := raw(t.Context(), in, Options{Ahead: 1, MaxTokens: 300})
	if err != nil {
		t.Fatal(err)
	}
	m, err := checkpoint.Open(layout.OS(), "../../testdata/tinymoe/tinymoe-q8_0.gguf", layout.Buffered)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Source.Close()
	routers, err := m.Source.(layout.RouterSource).Routers()
	if err != nil {
		t.Fatal(err)
	}
	in.Rule = routers.RouterRule
	for l := range in.Routers {
		if in.Routers[l], err = routers.Load(l); err != nil {
			t.Fatal(err)
		}
	}
	got, err := raw(t.Context(), in, Options{Ahead: 1, MaxTokens: 300})
	if err != nil {
		t.Fatal(err)
	}
	if got[0].RecallAtK != want[0].RecallAtK || want[0].RecallAtK < 0.7 {
		t.Errorf("got recall %.4f, with the file of gates %.4f", got[0].RecallAtK, want[0].RecallAtK)
	}
}
