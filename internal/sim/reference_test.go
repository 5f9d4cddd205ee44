package sim

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"outrider/internal/testtrace"
	"outrider/trace"
)

func simulate(t testing.TB, tr *trace.Trace, run string, o Options) *Result {
	t.Helper()
	r, err := Run(context.Background(), tr, run, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestReferenceTable prints the figures of three recorded traces from cold
// start, and asserts that the default forecast earns its keep on each.
func TestReferenceTable(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("replays 3,000 tokens of three traces several times")
	}
	for _, c := range []struct {
		name string
		hits float64 // that online must have over lru
	}{
		{"traces/gpt-oss-20b.jsonl.gz", 0.07},
		{"traces/deepseek-v2-lite-chat.jsonl.gz", 0.07},
		{"tinymoe/traces.jsonl.gz", 0.07},
	} {
		t.Run(filepath.Base(c.name)+" of "+filepath.Base(filepath.Dir(c.name)), func(t *testing.T) {
			tr := testtrace.Shared(t, c.name, 3000)
			t.Logf("%-12s %6s %6s %6s %8s %8s", "run", "hits", "stall", "recall", "demand", "ahead")
			by := map[string]*Result{}
			for _, run := range []string{"lru", "online", "online+spec", "optimum"} {
				r := simulate(t, tr, run, Options{CacheShare: 0.25})
				by[run] = r
				t.Logf("%-12s %6.3f %6.3f %6.3f %8.2f %8.2f", run, r.Hits, r.StallOverCompute, r.RecallAtK,
					r.DemandReadsPerToken, r.SpeculativeReadsPerToken)
			}
			lru, online, spec := by["lru"], by["online"], by["online+spec"]
			if got, want := online.Hits, lru.Hits+c.hits; got < want {
				t.Errorf("online hits: got %.3f, want at least %.3f (lru + %.2f)", got, want, c.hits)
			}
			if got, want := spec.StallOverCompute, 0.6*lru.StallOverCompute; got > want {
				t.Errorf("online+spec stall: got %.3f, want at most %.3f (0.6 × lru)", got, want)
			}
			if got, want := spec.DemandReadsPerToken, 1.02*online.DemandReadsPerToken; got > want {
				t.Errorf("demand reads with speculation: got %.2f a token, want at most %.2f", got, want)
			}
		})
	}
}

// TestRecordedHits compares the exact yardsticks with figures from another
// program, to the three digits that it gave.
func TestRecordedHits(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("replays 9,000 tokens twice")
	}
	for _, c := range []struct {
		name         string
		tokens       int
		share        float64
		lru, optimum float64
	}{
		{"traces/gpt-oss-20b.jsonl.gz", 6000, 0.25, 0.626, 0.831},
		{"traces/gpt-oss-20b.jsonl.gz", 6000, 0.5, 0.911, 0.967},
		{"traces/deepseek-v2-lite-chat.jsonl.gz", 3000, 0.25, 0.449, 0.713},
		{"traces/deepseek-v2-lite-chat.jsonl.gz", 3000, 0.5, 0.697, 0.884},
	} {
		tr := testtrace.Shared(t, c.name, c.tokens)
		o := Options{CacheShare: c.share}
		if got := simulate(t, tr, "lru", o).Hits; math.Abs(got-c.lru) > 0.0005 {
			t.Errorf("%s, lru at %v: got %.4f, want %.3f", c.name, c.share, got, c.lru)
		}
		if got := simulate(t, tr, "optimum", o).Hits; math.Abs(got-c.optimum) > 0.0005 {
			t.Errorf("%s, optimum at %v: got %.4f, want %.3f", c.name, c.share, got, c.optimum)
		}
	}
}
