package main

import "testing"

// TestSimulateWarm: the share is of the whole trace, --max-tokens of what follows it,
// and only what learned differs from the same tokens without.
func TestSimulateWarm(t *testing.T) {
	cells := func(args ...string) simulation {
		return decode[simulation](t, append([]string{"simulate", tinyTrace, "--runs", "lru,online+spec"}, args...)...)
	}
	warm, skip := cells("--warm", "20%", "--max-tokens", "300"), cells("--skip", "0.2", "--max-tokens", "300")
	if warm.Trace.Tokens != 300 || skip.Trace.Tokens != 300 || warm.Cells[0].Tokens != 300 {
		t.Fatalf("got %d and %d tokens, want 300", warm.Trace.Tokens, skip.Trace.Tokens)
	}
	if *warm.Cells[0] != *skip.Cells[0] {
		t.Errorf("lru: got %+v after --warm, %+v after --skip, want the same", *warm.Cells[0], *skip.Cells[0])
	}
	if got, most := warm.Cells[1].StallOverCompute, 0.95*skip.Cells[1].StallOverCompute; got > most {
		t.Errorf("online+spec: got a stall of %.3f after --warm, want at most %.3f", got, most)
	}
	if all := cells("--skip", "20%"); all.Trace.Tokens != 1638 {
		t.Errorf("got %d tokens of 2,048 after a fifth, want 1,638", all.Trace.Tokens)
	}
	for _, args := range [][]string{{"--warm", "100%"}, {"--skip", "100%"}, {"--warm", "10%", "--skip", "10%"}, {"--warm", "0"}, {"--warm", "lots"}, {"--skip", "99.99%"}, {"--runs="}} {
		if got := invoke(t, append([]string{"simulate", tinyTrace}, args...)...); got.status != exitUsage {
			t.Errorf("%v: got status %d, %q, want %d", args, got.status, got.stderr, exitUsage)
		}
	}
}
