package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider/internal/testfiles"
)

// lookFiles are a real model's trace, hidden states and routers.
func lookFiles(t *testing.T) (path, hidden, gates string) {
	t.Helper()
	return testfiles.Shared(t, "tinymoe/traces-small.jsonl.gz"), testfiles.Shared(t, "tinymoe/traces-small.hidden.f16.bin"), testfiles.Shared(t, "tinymoe/gates.f32.bin")
}

func TestEvaluateLookahead(t *testing.T) {
	path, hidden, gates := lookFiles(t)
	// The whole trace is internal/lookeval's to test.
	e := decode[evaluation](t, "evaluate", path, "--predictors", "online", "--hidden", hidden, "--gates", gates, "--max-tokens", "1024")
	if e.Lookahead == nil || len(e.Rows) != 1 || e.Lookahead.Tokens != e.Trace.Tokens {
		t.Fatalf("got %+v of %d rows, want a look-ahead beside one row, over the same tokens", e.Lookahead, len(e.Rows))
	}
	recall := map[string][]float64{}
	for _, r := range e.Lookahead.Rows {
		recall[r.Source] = append(recall[r.Source], r.RecallAtK)
	}
	for _, source := range []string{"lookahead", "online, no ids", "online, no ids + lookahead", "online", "online + lookahead"} {
		r := recall[source]
		if len(r) != 3 || r[0] <= r[1] || r[1] <= r[2] {
			t.Errorf("%s: got recall %.3v, want three that fall with the distance", source, r)
		}
	}
	if got := recall["online + lookahead"][0]; got < 0.78 {
		t.Errorf("online and look-ahead, one layer ahead: got recall %.3f, want at least 0.78", got)
	}
	if got, want := recall["online"][0], e.Rows[0].RecallAtK; math.Abs(got-want) > 1e-9 {
		t.Errorf("online alone: got recall %.4f in the table of the look-ahead, %.4f in the other", got, want)
	}
}

func TestEvaluateLookaheadText(t *testing.T) {
	path, hidden, gates := lookFiles(t)
	text := succeed(t, "evaluate", path, "--predictors", "recency", "--hidden", hidden, "--gates", gates, "--max-tokens", "60", "--warm", "1%")
	for _, want := range []string{"layers ahead", "\nlookahead ", "\nrecency, no ids + lookahead ", "\nrecency + lookahead "} {
		if !strings.Contains(text, want) {
			t.Errorf("got %q, want %q in it", text, want)
		}
	}
}

// TestEvaluateLookaheadErrors: what does not belong together is named, before
// anything is replayed.
func TestEvaluateLookaheadErrors(t *testing.T) {
	path, hidden, gates := lookFiles(t)
	short := filepath.Join(t.TempDir(), "short.bin")
	if err := os.WriteFile(short, make([]byte, 100), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		trace, hidden, gates string
		status               int
		want                 string
	}{
		{path, hidden, "", exitUsage, "--hidden and --gates belong together"},
		{path, "", gates, exitUsage, "--hidden and --gates belong together"},
		{path, hidden + "x", gates, exitInput, "hidden states: stat " + hidden + "x: no such file"},
		{path, hidden, gates + "x", exitInput, "router matrices: stat " + gates + "x: no such file"},
		{path, short, gates, exitInput, short + " has 100 bytes, which are not the float16 states of 3072 tokens x 8 layers"},
		{path, hidden, short, exitInput, "8 layers of 32 x 256 float32 need 262144"},
		{path, hidden, hidden, exitInput, "% of the experts that the trace says"},
		{tinyTrace, hidden, gates, exitInput, "8 layers of 32 x 384 float32 need 393216"},
		{otherTrace, hidden, gates, exitInput, "are not the float16 states of"},
	} {
		args := []string{"evaluate", c.trace, "--predictors", "frequency"}
		if c.hidden != "" {
			args = append(args, "--hidden", c.hidden)
		}
		if c.gates != "" {
			args = append(args, "--gates", c.gates)
		}
		got := invoke(t, args...)
		if got.status != c.status || !strings.Contains(got.stderr, c.want) || got.stdout != "" {
			t.Errorf("%v: got status %d, %q, want %d and %q", args[1:], got.status, got.stderr, c.status, c.want)
		}
	}
}
