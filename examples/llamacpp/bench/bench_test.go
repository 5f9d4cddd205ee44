package main

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"outrider/examples/llamacpp/internal/libtest"
	"outrider/layout"
)

const tiny = "../../../testdata/tinymoe/tinymoe-q8_0.gguf"

// fake answers as outrider-llama does, and costs no start of a Go program. The library
// that it is told is what is to go wrong.
const fake = `#!/bin/sh
fail() { echo "outrider-llama: $1" >&2; exit 1; }
case "$*" in
*"--lib no library"*) fail "llama.cpp cannot be used" ;;
*"--budget 1B"*) fail "experts: budget is below the floor: 1 bytes given, one layer of one token needs 4096; raise the budget to at least that" ;;
*"--lib demand fails"*"--mode demand"*) fail "expert 3 of layer 2 cannot be read" ;;
*"--lib demand says nonsense"*"--mode demand"*) echo hello; exit ;;
*"--mode resident"*) rate=100 ;;
*"--mode mmap"*) rate=2 ;;
*"--mode demand"*) rate=20 ;;
*"--mode outrider"*) rate=40 ;;
esac
case "$*" in *--force-text*) text='"forced": {"digest": "d"}' ;; *) text='"texts": [{"token_ids": [1, 2, 3]}]' ;; esac
case "$*" in *--budget*) sizes='"expert_bytes": 14000000, "budget_bytes": 3000000,' bytes=1000000 ;; *) sizes= bytes=0 ;; esac
cat <<END
{"about": "a model", "library": "0.5.0", "dense_bytes": 2000000, "peak_bytes": 30000000, $sizes $text,
 "prompt": {"tokens_per_s": $rate}, "decode": {"tokens_per_s": $rate, "tokens": 200, "bytes_per_token": $bytes}}
END
`

// fakeCommand is a file with it.
func fakeCommand(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outrider-llama")
	if err := os.WriteFile(path, []byte(fake), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := exec.Command(path, "--mode", "mmap").Run(); err != nil {
		t.Skipf("no shell scripts run here: %v", err)
	}
	return path
}

func runBench(t *testing.T, ctx context.Context, args ...string) (status int, stdout, stderr string, f findings) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "results.json")
	var o, e strings.Builder
	status = run(ctx, append([]string{"--model", tiny, "--out", out, "--raw-time", "2ms"}, args...), &o, &e)
	if b, err := os.ReadFile(out); err == nil {
		if err := json.Unmarshal(b, &f); err != nil {
			t.Errorf("--out: %v", err)
		}
	}
	return status, o.String(), e.String(), f
}

func TestBench(t *testing.T) {
	status, stdout, stderr, f := runBench(t, t.Context(), "--command", fakeCommand(t), "--rounds", "2", "--budgets", "25%,8MB", "--warm-up", "100")
	if status != exitDone {
		t.Fatalf("got status %d: %s", status, stderr)
	}
	_, err := findGroups("/")
	limited := err == nil
	want := map[string]bool{
		"| 25% | outrider |": true, "| 8MB | demand |": true, "21 of 21 texts; 8 of 8 runs of given text | yes |": true, "Speed is teacher-forced": true, "300 behind 100 that do not count in a round (mmap: 24 behind 24 that": true,
		"Note: the text ended after 200 of 300 tokens.":                                   true,
		"outrider / demand ≥ 1.25 | 2.00 (2.00–2.00) | yes |":                             true,
		"outrider / mmap, same memory limit ≥ 8 | 20.0 (20.0–20.0) | yes |":               limited,
		"The mmap arm was left out":                                                       !limited,
		"decode at 100 %, warm: outrider / resident ≥ 0.97 |  | not measured |":           true,
		"least budget 0.0 MB":                                                             true,
		"at most 25.0 MB more than dense weights + budget (speed, demand at 25%, round 1": true,
	}
	for text, expected := range want {
		if strings.Contains(stdout, text) != expected {
			t.Errorf("report contains %q: got %v, want %v\n%s", text, !expected, expected, stdout)
		}
	}
	if f.Sizes.FloorBytes != 4096 || len(f.Rows) == 0 || len(f.Runs) == 0 || f.Arguments[1] != tiny {
		t.Errorf("--out: got %+v", f)
	}
}

func TestAFailedRunIsToldAndTheRestGoesOn(t *testing.T) {
	for fault, word := range map[string]string{"demand fails": "expert 3 of layer 2 cannot be read", "demand says nonsense": "its JSON"} {
		status, stdout, stderr, f := runBench(t, t.Context(), "--command", fakeCommand(t), "--lib", fault, "--rounds", "1", "--budgets", "25%", "--prefill-tokens", "0")
		if status != exitFailed || !strings.Contains(stderr, "runs failed") || !strings.Contains(stdout, "Failed: speed, demand at 25%, round 1: ") || !strings.Contains(stdout, word) {
			t.Errorf("%s: got status %d\n%s\n%s", fault, status, stdout, stderr)
		}
		if !strings.Contains(stdout, "12 of 21 texts; 1 of 2 runs of given text") || !strings.Contains(stdout, "| 25% | outrider |") || len(f.Runs) == 0 {
			t.Errorf("%s: got %s", fault, stdout)
		}
	}
}

func TestRefusals(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, tt := range []struct {
		args   []string
		status int
		word   string
	}{
		{[]string{"--rounds", "0"}, exitUsage, "want 1 or more"},
		{[]string{"--equal-tokens=-1"}, exitUsage, "want 0 or more"},
		{[]string{"--raw-time", "0s"}, exitUsage, "more than 0"},
		{[]string{"--budgets", "25%,lots"}, exitUsage, "is no size"},
		{[]string{"--budget"}, exitUsage, "unknown flag"},
		{[]string{"--model", missing}, exitFailed, "no such file"},
		{[]string{"--store", missing}, exitFailed, "no such file"},
		{[]string{"--out", filepath.Join(missing, "r.json")}, exitFailed, "--out"},
		{[]string{"--lib", "no library"}, exitFailed, "cannot be used"},
		{[]string{"--command", missing}, exitFailed, "no such file"},
	} {
		status, _, stderr, _ := runBench(t, t.Context(), append([]string{"--command", fakeCommand(t)}, tt.args...)...)
		if status != tt.status || !strings.Contains(stderr, tt.word) {
			t.Errorf("%v: got status %d %q, want %d and %q", tt.args, status, stderr, tt.status, tt.word)
		}
	}
	status, stdout, _, _ := runBench(t, t.Context(), "--help")
	if status != exitDone || !strings.Contains(stdout, "synth widen") {
		t.Errorf("--help: got status %d\n%s", status, stdout)
	}
}

// What was measured is not lost.
func TestInterruptedBenchReports(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b := &bench{command: &command{Out: filepath.Join(t.TempDir(), "r.json")}, found: measured(), log: writerFunc(func(p []byte) { cancel() })}
	raw, err := openRaw(tiny, "", time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	b.raw = raw
	defer raw.Close()
	before := len(b.found.Runs)
	if err := b.steps(ctx, []step{{}, {}}); err == nil || len(b.found.Runs) != before+1 {
		t.Errorf("got %v and %d runs, want one and the context's cause", err, len(b.found.Runs)-before)
	}
	var report strings.Builder
	none := &findings{summary: summarise(&findings{}, nil)}
	if none.writeTo(&report); !strings.Contains(report.String(), "Nothing of this was measured.") || strings.Contains(report.String(), "|  |\n") {
		t.Errorf("interrupted at once: got %s", report.String())
	}
	status, _, stderr, _ := runBench(t, ctx, "--command", fakeCommand(t))
	if status != exitFailed || !strings.Contains(stderr, "interrupted") {
		t.Errorf("got status %d %q", status, stderr)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

func TestRawReads(t *testing.T) {
	r, err := openRaw(tiny, "", 2*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	rate, err := r.measure(t.Context())
	if err != nil || rate.BytesPerSecond <= 0 || !slices.Contains(rawDepths, rate.Depth) {
		t.Errorf("got %+v, %v", rate, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := openRaw(filepath.Join(t.TempDir(), "missing"), "", time.Second); err == nil || !strings.HasPrefix(err.Error(), "raw reader: ") {
		t.Errorf("missing: got %v", err)
	}
}

func TestBlocksLieOneAfterTheOther(t *testing.T) {
	b := &blocks{block: 8192, counts: []int{2, 0, 3}}
	var p layout.Placement
	for i, want := range [][2]int64{{0, 0}, {0, 8192}, {2, 0}, {2, 8192}, {2, 16384}} {
		if err := b.Locate(layout.ExpertID{Index: int32(i)}, &p); err != nil || len(p.Reads) != 1 ||
			p.Reads[0] != (layout.Read{Lane: int(want[0]), Offset: want[1], Bytes: 8192, Need: 8192}) {
			t.Errorf("block %d: got %+v, %v, want %v", i, p, err, want)
		}
	}
	for _, i := range []int32{5, math.MaxInt32} {
		if err := b.Locate(layout.ExpertID{Index: i}, &p); err == nil {
			t.Errorf("block %d of 5: got no error", i)
		}
	}
	if s := b.Shape(); s.Count() != 5 || b.SlotBytes(0) != 8192 {
		t.Errorf("got %+v", s)
	}
}

// The real command measures a small model.
func TestRealBench(t *testing.T) {
	lib := libtest.Dir(t)
	if testing.Short() {
		t.Skip("builds outrider-llama and runs it a dozen times")
	}
	status, stdout, stderr, f := runBench(t, t.Context(), "--lib", lib, "--rounds", "1", "--budgets", "25%", "--tokens", "6", "--mmap-tokens", "2",
		"--prefill-tokens", "24", "--equal-tokens", "0")
	if status != exitDone {
		t.Fatalf("got status %d\n%s\n%s", status, stdout, stderr)
	}
	for _, arm := range []string{resident, demand, outrider} {
		if r := f.rowOf(speed, "25%", arm); r.Rate.N != 1 || r.Rate.Median <= 0 || streams(arm) && r.Bytes.Median <= 0 {
			t.Errorf("%s: got %+v", arm, r)
		}
	}
	if r := f.rowOf(prefill, "25%", outrider); r.Rate.Median <= 0 {
		t.Errorf("prefill: got %+v", r)
	}
	t.Logf("%s\n%s", stdout, stderr)
}
