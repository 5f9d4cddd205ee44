package main

import (
	"slices"
	"strings"
	"testing"
)

func budgets(t testing.TB, texts ...string) (out []budget) {
	t.Helper()
	for _, s := range texts {
		var b budget
		if err := b.UnmarshalText([]byte(s)); err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

// words is a schedule in short.
func words(steps []step) string {
	var out []string
	for _, s := range steps {
		switch {
		case s.Arm == "":
			out = append(out, "raw")
		case s.Purpose == prefill:
			out = append(out, s.Arm+"-prefill")
		default:
			out = append(out, s.Arm+s.Budget)
		}
	}
	return strings.Join(out, " ")
}

func TestSpeedStepsTakeTurns(t *testing.T) {
	c := &command{Budgets: budgets(t, "25%", "100%"), Rounds: 2, Tokens: 300, WarmUp: 100, MmapTokens: 24, PrefillTokens: 512}
	steps := c.speedSteps(model{DenseBytes: 1e6, ExpertBytes: 100e6, limited: true})
	const want = "resident25% mmap25% raw demand25% raw outrider25% raw resident100% mmap100% raw demand100% raw outrider100% raw mmap-prefill demand-prefill outrider-prefill " +
		"outrider-prefill demand-prefill mmap-prefill raw outrider100% raw demand100% raw mmap100% resident100% raw outrider25% raw demand25% raw mmap25% resident25% resident25%"
	if got := words(steps); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, s := range steps {
		limit, tokens, warm := int64(0), 300, 100
		switch {
		case s.Arm == "":
			continue
		case s.Arm != resident && s.Budget == "25%":
			limit = 154e6
		case s.Arm != resident:
			limit = 229e6
		}
		if s.Purpose == prefill {
			tokens, warm = 1, 0
		} else if s.Arm == mmap {
			tokens, warm = 24, 24
		}
		if s.Limit != limit || s.Tokens != tokens || s.WarmUp != warm {
			t.Errorf("%s: got a limit of %d and %d tokens behind %d, want %d, %d and %d", s, s.Limit, s.Tokens, s.WarmUp, limit, tokens, warm)
		}
	}
	if first, last := steps[0], steps[len(steps)-1]; last.Arm != first.Arm || last.Budget != first.Budget || last.Round != 2 {
		t.Errorf("got %+v last, want %+v again", last, first)
	}
}

func TestWithoutLimitsThereIsNoMmapArm(t *testing.T) {
	c := &command{Budgets: budgets(t, "50%"), Rounds: 1}
	steps := c.speedSteps(model{DenseBytes: 1e6, ExpertBytes: 100e6})
	if got := words(steps); got != "resident50% raw demand50% raw outrider50% raw resident50%" {
		t.Errorf("got %s", got)
	}
	if slices.ContainsFunc(steps, func(s step) bool { return s.Limit != 0 }) {
		t.Errorf("got %+v, want no limits", steps)
	}
}

func TestEqualSteps(t *testing.T) {
	c := &command{EqualTokens: 128}
	steps := c.equalSteps(model{FloorBytes: 4096})
	const each = "resident mmap demandfloor demand25% demand100% outriderfloor outrider25% outrider100%"
	if got := words(steps); got != each+" "+each+" "+each {
		t.Errorf("got %s", got)
	}
	if s := steps[2]; s.amount != "4096" || s.Tokens != 128 || s.Limit != 0 {
		t.Errorf("got %+v, want the floor in bytes", s)
	}
	c.EqualTokens = 0
	if steps := c.equalSteps(model{}); steps != nil {
		t.Errorf("none asked for: got %+v", steps)
	}
}
