package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

// tornTrace writes a trace of 5 tokens without its end.
func tornTrace(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "torn.trace")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := trace.NewWriter(f, trace.Header{Model: "m", Shape: layout.Shape{Layers: 2, Experts: 4, TopK: 2}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		a := trace.Activation{Pos: int64(i), Token: -1, Experts: []int32{0, 1, 2, int32(i % 2)}}
		if err := w.Append(&a); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTraceInfoOfATornTrace(t *testing.T) {
	got := invoke(t, "trace", "info", tornTrace(t))
	if got.status != exitInput || !strings.Contains(got.stderr, "before its end mark") {
		t.Errorf("got status %d, %q, want 3 and that the trace is torn", got.status, got.stderr)
	}
	if !strings.Contains(got.stdout, "5 in 1 sequences, and more that were not read") {
		t.Errorf("got %q, want the statistics of what is there", got.stdout)
	}
}

func TestTraceInfoCompleteness(t *testing.T) {
	all := decode[traceSummary](t, "trace", "info", otherTrace)
	for max, want := range map[string]bool{"0": true, "299": false, "300": true, "301": true} {
		got := decode[traceSummary](t, "trace", "info", otherTrace, "--max-tokens", max)
		if got.Complete != want {
			t.Errorf("--max-tokens %s of %d: got complete %v, want %v", max, all.Tokens, got.Complete, want)
		}
	}
	if len(all.PerLayer) != 24 || all.Cycle != 96 || !all.Informed {
		t.Errorf("got %d layers, cycle %v, informed %v, want 24, 96, true", len(all.PerLayer), all.Cycle, all.Informed)
	}
}

func TestSimulateNamesTheRemedyForATornTrace(t *testing.T) {
	path := tornTrace(t)
	got := invoke(t, "simulate", path, "--cache", "50%")
	if got.status != exitInput || !strings.Contains(got.stderr, "--max-tokens 5") {
		t.Errorf("got status %d, %q, want 3 and --max-tokens 5", got.status, got.stderr)
	}
	succeed(t, "simulate", path, "--cache", "50%", "--max-tokens", "5")
}

func TestSimulateCells(t *testing.T) {
	s := decode[simulation](t, "simulate", tinyTrace, "--max-tokens", "400", "--cache", "25%,50%", "--ratio", "0.5", "--ratio", "1")
	if len(s.Cells) != 2*2*4 || s.Trace.Tokens != 400 || s.Trace.Model != "tinymoe" {
		t.Fatalf("got %d cells of %d tokens of %q, want 16 of 400 of tinymoe", len(s.Cells), s.Trace.Tokens, s.Trace.Model)
	}
	for i := 0; i < len(s.Cells); i += 4 {
		lru, online, spec, optimum := s.Cells[i], s.Cells[i+1], s.Cells[i+2], s.Cells[i+3]
		if lru.Run != "lru" || online.Run != "online" || spec.Run != "online+spec" || optimum.Run != "optimum" {
			t.Fatalf("got runs %s, %s, %s, %s, want those of --runs in order", lru.Run, online.Run, spec.Run, optimum.Run)
		}
		if !(lru.Hits < online.Hits && online.Hits < optimum.Hits) {
			t.Errorf("cache %v: got hits %v, %v, %v, want lru < online < optimum", lru.CacheShare, lru.Hits, online.Hits, optimum.Hits)
		}
		if spec.StallOverCompute >= lru.StallOverCompute || spec.Useful == 0 {
			t.Errorf("cache %v: got stall %v with %d useful reads, want less than lru's %v", spec.CacheShare, spec.StallOverCompute, spec.Useful, lru.StallOverCompute)
		}
	}
}

func TestSimulateInterrupted(t *testing.T) {
	ctx, out := canceller(t)
	out.cancel()
	for _, args := range [][]string{{"simulate", tinyTrace}, {"trace", "info", tinyTrace}} {
		if status := run(ctx, args, out, out); status != exitInterrupted {
			t.Errorf("%v: got status %d, want 130", args, status)
		}
	}
}
