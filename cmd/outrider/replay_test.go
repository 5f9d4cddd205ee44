package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider/internal/replay"
)

// TestMain is the mmap arm's process when a replay starts the test as one.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == mmapServe {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func TestReplayAgainstAStore(t *testing.T) {
	dir := newStore(t)
	plot := filepath.Join(t.TempDir(), "p.svg")
	var r replayed
	unchanged(t, func() {
		r = decode[replayed](t, "replay", tinyTrace, dir, "--max-tokens", "60", "--compute", "100us", "--rounds", "2",
			"--runs", "lru,online,online+spec,optimum", "--budget", "25%,50%", "--plot", plot)
	}, dir)
	if len(r.Cells) != 2*4+1 || r.Trace.Tokens != 60 || r.Store.Made || r.Rounds != 2 {
		t.Fatalf("got %d cells of %d tokens, store made %v, want 9 of 60, not made", len(r.Cells), r.Trace.Tokens, r.Store.Made)
	}
	last := r.Cells[len(r.Cells)-1]
	if last.Run != "lru" || !last.Again || last.Hits != r.Cells[0].Hits {
		t.Errorf("the last cell: got %+v, want the first again with its hits", last)
	}
	for _, c := range r.Cells {
		if c.StallOverCompute <= 0 || c.StallLeast > c.StallOverCompute || c.StallMost < c.StallOverCompute {
			t.Errorf("%s: got stall %v of %v to %v, want some within its spread", c.Run, c.StallOverCompute, c.StallLeast, c.StallMost)
		}
		if c.RawBytesPerSecond <= 0 || c.BytesPerSecond <= 0 || c.Ratio <= 0 || c.Hits <= 0 || c.Hits >= 1 {
			t.Errorf("%s: got %+v, want bytes, a raw reader's figure and hits between", c.Run, c)
		}
		if share := c.CacheShare; share < 0.24 || share > 0.51 {
			t.Errorf("%s: got a cache share of %v, want a quarter or a half", c.Run, share)
		}
	}
	if lru, best := r.Cells[0], r.Cells[3]; best.Hits <= lru.Hits || best.DemandReadsPerToken >= lru.DemandReadsPerToken {
		t.Errorf("optimum: got hits %v and %v demand reads a token, lru %v and %v: want more and fewer", best.Hits, best.DemandReadsPerToken, lru.Hits, lru.DemandReadsPerToken)
	}
	if info, err := os.Stat(plot); err != nil || info.Size() < 1000 {
		t.Errorf("the plot: got %v, want a picture", err)
	}
}

// Hits with demand reads alone follow from the trace, so they must be those of
// the simulation.
func TestReplayHitsAreTheSimulations(t *testing.T) {
	r := decode[replayed](t, "replay", tinyTrace, newStore(t), "--max-tokens", "100", "--compute", "50us", "--rounds", "1", "--runs", "lru,lfu,least-stale")
	s := decode[simulation](t, "simulate", tinyTrace, "--max-tokens", "100", "--runs", "lru,lfu,least-stale")
	for i, c := range s.Cells {
		if got := r.Cells[i].Hits; got != c.Hits {
			t.Errorf("%s: got hits %v replayed, %v simulated, want the same", c.Run, got, c.Hits)
		}
	}
}

func TestReplayMakesAStore(t *testing.T) {
	dir := t.TempDir()
	got := invoke(t, "replay", otherTrace, "--max-tokens", "20", "--compute", "20us", "--rounds", "1", "--runs", "lru,mmap", "--record", "16KiB", "--dir", dir)
	if got.status != exitDone {
		t.Fatalf("got status %d: %s", got.status, got.stderr)
	}
	for _, want := range []string{"made for this call, without weights", "lru again", "mmap at 25 %", "compute  20 us a layer"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("got no %q in\n%s", want, got.stdout)
		}
	}
	if !strings.Contains(got.stderr, "no store was named: making one") {
		t.Errorf("stderr: got %q, want that a store is being made", got.stderr)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left in the folder: %v (%v), want nothing", left, err)
	}
}

func TestReplayRefuses(t *testing.T) {
	dir := newStore(t)
	for _, c := range []struct {
		status int
		want   string
		args   []string
	}{
		{exitInput, "different models", []string{otherTrace, dir}},
		{exitInput, "missing", []string{"missing", dir}},
		{exitInput, "missing", []string{tinyTrace, "missing"}},
		{exitInput, "needs", []string{tinyTrace, dir, "--budget", "1%", "--runs", "lru"}},
		{exitUsage, "mmap", []string{tinyTrace, dir, "--runs", "fifo"}},
		{exitUsage, "--compute", []string{tinyTrace, dir, "--compute", "0s"}},
		{exitUsage, "--rounds", []string{tinyTrace, dir, "--rounds", "0"}},
		{exitUsage, "--record", []string{tinyTrace, "--record", "5%"}},
		{exitUsage, "--plot", []string{tinyTrace, dir, "--plot", "x.gif"}},
		{exitFailed, "not enough space", []string{otherTrace, "--record", "16GiB", "--dir", t.TempDir()}},
	} {
		got := invoke(t, append([]string{"replay"}, c.args...)...)
		if got.status != c.status || !strings.Contains(got.stderr, c.want) {
			t.Errorf("replay %v: got status %d, %q, want %d with %q", c.args, got.status, got.stderr, c.status, c.want)
		}
	}
}

func TestReplayInterrupted(t *testing.T) {
	dir := t.TempDir()
	ctx, out := canceller(t)
	status := run(ctx, []string{"replay", otherTrace, "--record", "16KiB", "--dir", dir}, out, out) // ends at its first word
	if status != exitInterrupted {
		t.Errorf("got status %d (%s), want 130", status, out.got.String())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in the folder: %v (%v), want nothing", left, err)
	}
}

func TestSpread(t *testing.T) {
	rounds := []replay.Round{{Stall: 3, Compute: 1}, {Stall: 1, Compute: 1}, {Stall: 2, Compute: 1}, {Stall: 9, Compute: 1}}
	if m := medianOf(rounds, replay.Round.StallOverCompute); m != 2 {
		t.Errorf("median: got %v, want the lower middle, 2", m)
	}
	if least, most := spread(rounds); least != 1 || most != 9 {
		t.Errorf("spread: got %v to %v, want 1 to 9", least, most)
	}
}
