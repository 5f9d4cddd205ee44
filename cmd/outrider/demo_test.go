package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"outrider/internal/costs"
)

func TestDemo(t *testing.T) {
	folder := t.TempDir()
	s := decode[demoSummary](t, "demo", "--dir", folder, "--rounds", "1", "--tokens", "16")
	if !s.TextEqual || len(s.Text) != len(demoPrompts) || len(s.Arms) != 3 {
		t.Fatalf("got %+v, want equal texts of 4 prompts and 3 arms", s)
	}
	for i, want := range []string{"resident", "demand", "outrider"} {
		arm := s.Arms[i]
		if arm.Name != want || arm.Tokens != 60 || arm.TokensPerSecond <= 0 {
			t.Errorf("arm %d: got %+v, want %s with 60 tokens", i, arm, want)
		}
		if streamed := arm.BytesPerToken > 0 && arm.Hits < 1; streamed != (want != "resident") {
			t.Errorf("arm %s: got %v bytes a token, hits %v, want that only the streamed arms read", want, arm.BytesPerToken, arm.Hits)
		}
	}
	if demand := s.Arms[1]; demand.SpeculativeReadsPerToken != 0 {
		t.Errorf("arm demand: got %v speculative reads a token, want none", demand.SpeculativeReadsPerToken)
	}
	wantEmpty(t, folder)
}

func TestDemoText(t *testing.T) {
	out := succeed(t, "demo", "--dir", t.TempDir(), "--rounds", "1", "--tokens", "2")
	for _, want := range []string{"8 layers x 32 experts", "\nscripture ", "\nresident ", "\ndemand ", "\noutrider ", "texts: equal", "x the stall"} {
		if !strings.Contains(out, want) {
			t.Errorf("got %q, want %q in it", out, want)
		}
	}
}

func TestDemoInterruptedCleansUp(t *testing.T) {
	folder := t.TempDir()
	ctx, out := canceller(t) // ends when the store is laid out
	if status := run(ctx, []string{"demo", "--dir", folder}, out, io.Discard); status != exitInterrupted {
		t.Errorf("got status %d, want 130", status)
	}
	if out.got.Len() == 0 {
		t.Error("got no output, want that the demo had begun")
	}
	wantEmpty(t, folder)
}

func TestDemoFindsDifferentTexts(t *testing.T) {
	same := armRound{decode: []costs.Cost{{Tokens: 1}}, texts: []demoText{{ids: []int32{1, 2}}}}
	other := armRound{decode: []costs.Cost{{Tokens: 1}}, texts: []demoText{{ids: []int32{1, 3}}}}
	var arms []*arm
	for _, name := range []string{"resident", "demand", "outrider"} {
		arms = append(arms, &arm{name: name, rounds: []armRound{same, same}})
	}
	arms[2].rounds[0] = other
	if summariseDemo(arms).TextEqual {
		t.Error("got equal texts, want different ones found")
	}
	arms[2].rounds[0] = same
	if !summariseDemo(arms).TextEqual {
		t.Error("got different texts, want equal ones")
	}
}

func TestTextCosts(t *testing.T) {
	text := func(stall time.Duration, hits int64) costs.Cost {
		return costs.Cost{Tokens: 10, Took: time.Second, Stall: stall, Lookups: 100, Hits: hits, Useful: 1}
	}
	got := textCosts([]costs.Cost{text(10*time.Microsecond, 30), text(time.Second, 60), text(30*time.Microsecond, 90)})
	if got.StallPerToken != 3 || got.Hits != 0.6 || got.Tokens != 30 || got.Useful != 3 || got.TokensPerSecond != 10 {
		t.Errorf("got %+v, want the middle text's stall of 3 µs a token, hits of 0.6, and sums", got)
	}
	if got := median([]float64{2, 1}); got != 1.5 {
		t.Errorf("median of two: got %v, want 1.5", got)
	}
}
