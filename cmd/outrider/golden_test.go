package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestHelp(t *testing.T) {
	for _, command := range []string{"", "layout build", "layout inspect", "layout verify", "layout forecast", "layout export", "run", "trace info", "trace convert", "trace synth", "trace forms", "simulate", "replay", "demo"} {
		args := append(strings.Fields(command), "--help")
		golden(t, strings.TrimSuffix("help-"+strings.ReplaceAll(command, " ", "-"), "-"), succeed(t, args...))
	}
}

func TestNoArgumentsPrintHelp(t *testing.T) {
	got := invoke(t)
	if got.status != exitUsage || got.stdout != succeed(t, "--help") {
		t.Errorf("got status %d and %q, want 2 and the help", got.status, got.stdout)
	}
}

func TestEveryHelpStatesJSONAndStatuses(t *testing.T) {
	for _, command := range []string{"layout build", "layout inspect", "layout verify", "layout forecast", "layout export", "run", "trace info", "trace convert", "trace synth", "trace forms", "simulate", "replay", "demo"} {
		help := succeed(t, append(strings.Fields(command), "--help")...)
		for _, want := range []string{"--json", "Exit status:", "130  interrupted"} {
			if !strings.Contains(help, want) {
				t.Errorf("help of %s: got no %q, want it", command, want)
			}
		}
	}
}

func TestInspectGolden(t *testing.T) {
	dir := newStore(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	unchanged(t, func() {
		golden(t, "inspect-store", settle(succeed(t, "layout", "inspect", dir), filepath.Dir(dir), root))
		golden(t, "inspect-checkpoint", settle(succeed(t, "layout", "inspect", modelFile)))
	}, dir, modelFile)
}

func TestInspectBudgets(t *testing.T) {
	for _, path := range []string{newStore(t), modelFile} {
		seen := decode[inspection](t, "layout", "inspect", path)
		// What is in memory beside the 52,224 bytes of an expert is due to the drive's alignment.
		if slot := seen.MemoryBytes / 256; slot < 52224 || slot > 52224+3*2*4096 {
			t.Errorf("%s: got %d bytes for an expert in memory, want 52224 and little more", path, slot)
		}
		if seen.MemoryBytes != 8*seen.CycleBytes || seen.FloorBytes > seen.CycleBytes || 8*seen.FloorBytes < seen.CycleBytes {
			t.Errorf("%s: got memory %d, cycle %d and floor %d, want 32, 4 of 32, and 4 experts of one of 8 layers",
				path, seen.MemoryBytes, seen.CycleBytes, seen.FloorBytes)
		}
		if seen.ExpertBytes != 256*52224 || seen.RestBytes != 2509824 {
			t.Errorf("%s: got %d and %d bytes, want the model's", path, seen.ExpertBytes, seen.RestBytes)
		}
	}
}

func TestTraceInfoGolden(t *testing.T) {
	unchanged(t, func() {
		golden(t, "trace-info", succeed(t, "trace", "info", otherTrace))
		golden(t, "trace-info-cut", succeed(t, "trace", "info", tinyTrace, "--max-tokens", "100"))
	}, otherTrace, tinyTrace)
}

func TestSimulateGolden(t *testing.T) {
	unchanged(t, func() {
		// Yardsticks only: forecasts may get better.
		golden(t, "simulate", succeed(t, "simulate", otherTrace, "--runs", "lru,lfu,optimum", "--cache", "25%", "--cache", "50%", "--ratio", "0.5,1"))
	}, otherTrace)
}

func TestErrorsGolden(t *testing.T) {
	dir := newStore(t)
	folder := filepath.Dir(dir)
	text := filepath.Join(folder, "letter.txt")
	if err := os.WriteFile(text, []byte("Dear Sir, this is no model.\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(folder, "missing")
	cases := []struct {
		status int
		args   []string
	}{
		{exitInput, []string{"layout", "inspect", text}},
		{exitInput, []string{"layout", "inspect", missing}},
		{exitInput, []string{"layout", "inspect", folder}},
		{exitInput, []string{"layout", "build", text, "--out", missing}},
		{exitInput, []string{"layout", "build", modelFile, "--out", dir}},
		{exitInput, []string{"layout", "build", modelFile, "--out", filepath.Join(missing, "store")}},
		{exitInput, []string{"layout", "build", modelFile, "--out", missing, "--align", "1000"}},
		{exitInput, []string{"layout", "build", modelFile, "--out", missing, "--trace", otherTrace}},
		{exitUsage, []string{"layout", "build", modelFile}},
		{exitUsage, []string{"layout", "build", modelFile, "--out", missing, "--lane", "lane.bin:0"}},
		{exitInput, []string{"layout", "verify", missing}},
		{exitInput, []string{"layout", "verify", dir, "--source", text}},
		{exitInput, []string{"run", missing, "--prompt", "x"}},
		{exitInput, []string{"run", dir, "--prompt", ""}},
		{exitInput, []string{"run", dir, "--prompt", strings.Repeat("word ", 600)}},
		{exitInput, []string{"run", dir, "--prompt", "x", "--budget", "1%"}},
		{exitInput, []string{"run", dir, "--prompt", "x", "--model", missing}},
		{exitInput, []string{"run", dir, "--prompt", "x", "--trace-out", text}},
		{exitUsage, []string{"run", dir}},
		{exitUsage, []string{"run", dir, "--prompt", "x", "--budget", "some"}},
		{exitUsage, []string{"run", dir, "--prompt", "x", "--policy", "best"}},
		{exitUsage, []string{"run", dir, "--prompt", "x", "-n", "0"}},
		{exitUsage, []string{"run", dir, "--prompt", "x", "--temperature", "-1"}},
		{exitUsage, []string{"run", dir, "--prompt", "x", "--top-p", "0.5"}},
		{exitInput, []string{"trace", "info", missing}},
		{exitInput, []string{"trace", "info", text}},
		{exitUsage, []string{"trace", "info", otherTrace, "--max-tokens", "-1"}},
		{exitUsage, []string{"simulate", otherTrace, "--cache", "0%"}},
		{exitUsage, []string{"simulate", otherTrace, "--cache", "lots"}},
		{exitUsage, []string{"simulate", otherTrace, "--cache", "0.1%"}},
		{exitUsage, []string{"simulate", otherTrace, "--runs", "lru,best"}},
		{exitUsage, []string{"simulate", otherTrace, "--ratio", "0"}},
		{exitInput, []string{"simulate", text}},
		{exitUsage, []string{"simulate", otherTrace, "--device", "fast"}},
		{exitUsage, []string{"simulate", otherTrace, "--device", "3GB/s"}},
		{exitUsage, []string{"simulate", otherTrace, "--cache", "4GiB"}},
		{exitUsage, []string{"simulate", otherTrace, "--plot", "stall.pdf"}},
		{exitUsage, []string{"trace", "info", text, "--from", "nonsense"}},
		{exitInput, []string{"trace", "convert", text, "-o", missing}},
		{exitUsage, []string{"trace", "convert", otherTrace}},
		{exitInput, []string{"demo", "--dir", missing}},
		{exitUsage, []string{"demo", "--budget", "0"}},
		{exitUsage, []string{"bogus"}},
		{exitUsage, []string{"layout"}},
		{exitUsage, []string{"run", "--bogus"}},
	}
	var out strings.Builder
	unchanged(t, func() {
		for _, c := range cases {
			got := invoke(t, c.args...)
			line := strings.Join(c.args, " ")
			if got.status != c.status {
				t.Errorf("outrider %s: got status %d (%s), want %d", line, got.status, got.stderr, c.status)
			}
			if n := strings.Count(got.stderr, "\n"); n != 1 || !strings.HasPrefix(got.stderr, "outrider: ") {
				t.Errorf("outrider %s: got %q on stderr, want one line from outrider", line, got.stderr)
			}
			fmt.Fprintf(&out, "$ outrider %.150s\n%s[%d]\n\n", settle(line, folder), settle(got.stderr, folder), got.status)
		}
	}, folder)
	golden(t, "errors", out.String())
	if _, err := os.Stat(missing); err == nil {
		t.Errorf("%s: got it, want that no failed build leaves anything", missing)
	}
}
