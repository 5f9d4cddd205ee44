package router

import (
	"testing"

	"outrider/internal/testtrace"
)

// TestRecordedRecall holds the default predictor to its figures on recorded
// traces, 3,000 tokens from an empty state, with one configuration for all.
func TestRecordedRecall(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("replays 3,000 tokens of each trace")
	}
	for _, c := range []struct {
		name   string
		tokens bool
		least  float64 // a little under what was measured
	}{
		{"traces/gpt-oss-20b.jsonl.gz", false, 0.78},
		{"traces/deepseek-v2-lite-chat.jsonl.gz", false, 0.62},
		{"tinymoe/traces.jsonl.gz", false, 0.68},
		{"tinymoe/traces.jsonl.gz", true, 0.71},
	} {
		tr := testtrace.Shared(t, c.name, 3000)
		if !c.tokens {
			for i := range tr.Tokens {
				tr.Tokens[i] = -1
			}
		}
		e := evaluate(t, "online", tr)
		t.Logf("%s, token ids %v: recall@K %.3f, 1.5K %.3f, 2K %.3f, layer 0 %.3f, log loss %.4f", c.name, c.tokens,
			e.Overall.AtK, e.Overall.At1p5K, e.Overall.At2K, e.Layers[0].AtK, e.Overall.LogLoss)
		if e.Overall.AtK < c.least {
			t.Errorf("%s, token ids %v: recall got %.3f, want at least %.3f", c.name, c.tokens, e.Overall.AtK, c.least)
		}
	}
}

// TestRecordedMatrix holds the figures that MatrixOptions names.
func TestRecordedMatrix(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("replays 3,000 tokens twice")
	}
	tr := testtrace.Shared(t, "traces/gpt-oss-20b.jsonl.gz", 3000)
	for _, c := range []struct {
		window   int
		from, to float64
	}{{0, 0.50, 0.53}, {1, 0.645, 0.675}} {
		e, err := Evaluate(t.Context(), newMatrix(t, tr.Header.Shape, MatrixOptions{Window: c.window}), tr, EvalOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Overall.AtK; got < c.from || got > c.to {
			t.Errorf("window %d: got recall %.3f, want %v to %v", c.window, got, c.from, c.to)
		}
	}
}
