package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"outrider/layout"
	"outrider/layout/drive"
)

// engineNames are the words of the flag, and what the summaries call them.
func engineNames(t *testing.T) map[string]string {
	t.Helper()
	names := map[string]string{"pread": layout.EnginePread, "buffered": layout.EngineBuffered}
	if ring, err := layout.OpenRing(layout.RingOptions{}); err == nil {
		names["io_uring"] = layout.EngineRing
		ring.Close()
	}
	f, err := layout.OS().Open(modelFile, layout.Direct)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Direct() == (layout.Alignment{}) {
		for flag := range names {
			names[flag] = layout.EngineBuffered // this disk is read in no other way
		}
	}
	return names
}

// TestEngineIsTheOneAskedFor: it reads, is named in the results, and changes no token.
func TestEngineIsTheOneAskedFor(t *testing.T) {
	run := []string{"run", modelFile, "--prompt", "In the beginning", "-n", "4"}
	replay := []string{"replay", tinyTrace, modelFile, "--max-tokens", "2", "--rounds", "1", "--compute", "10us", "--runs", "lru"}
	want := decode[runSummary](t, run...)
	if want.Engine == "" {
		t.Error("auto: no engine is named")
	}
	for flag, name := range engineNames(t) {
		got := decode[runSummary](t, append(run, "--engine", flag, "--depth", "3", "--block", "16KiB")...)
		if got.Engine != name || !slices.Equal(got.Tokens, want.Tokens) {
			t.Errorf("run --engine %s: got %s and tokens %v, want %s and %v", flag, got.Engine, got.Tokens, name, want.Tokens)
		}
		if got := decode[replayed](t, append(replay, "--engine", flag, "--depth", "3")...); got.Store.Engine != name {
			t.Errorf("replay --engine %s: got %s, want %s", flag, got.Store.Engine, name)
		}
	}
	if text := succeed(t, append(run, "--engine", "buffered")...); !strings.Contains(text, "reads       buffered\n") {
		t.Errorf("got %q, want the engine", text)
	}
}

func TestReadFlagsThatAreRefused(t *testing.T) {
	for _, tt := range []struct {
		flags  []string
		status int
		want   string
	}{
		{[]string{"--depth=-1"}, exitUsage, "--depth is -1"},
		{[]string{"--depth", "5000"}, exitUsage, "depth is 5000"},
		{[]string{"--block", "10%"}, exitUsage, "--block is no multiple"},
		{[]string{"--block", "1000"}, exitUsage, "--block is no multiple"},
		{[]string{"--engine", "mmap"}, exitUsage, "--engine"},
		{[]string{"--probe", filepath.Join(t.TempDir(), "none.json")}, exitInput, "none.json"},
		{[]string{"--probe", modelFile}, exitInput, modelFile},
	} {
		got := invoke(t, append([]string{"run", modelFile, "--prompt", "x", "-n", "2"}, tt.flags...)...)
		if got.status != tt.status || !strings.Contains(got.stderr, tt.want) {
			t.Errorf("%v: got status %d, %q, want %d and %q", tt.flags, got.status, got.stderr, tt.status, tt.want)
		}
	}
}

// TestProbeIsRead: the runtime reads as the profile recommends.
func TestProbeIsRead(t *testing.T) {
	f := readFlags{Probe: filepath.Join(t.TempDir(), "drive.json")}
	profile := &drive.Profile{
		Format: "outrider drive profile", Version: 1, Path: "/mnt/nvme", Kind: drive.KindFolder, FileBytes: 1 << 30, Direct: true,
		BlockBytes: 256 << 10, Depth: 4, BytesPerSecond: 2e9, LatencySeconds: 1e-4,
		Cells: []drive.Cell{{BlockBytes: 256 << 10, Depth: 4, BytesPerSecond: 2e9, P50Micros: 400, P99Micros: 900, Rounds: 3, Spread: 1.1}},
	}
	if err := profile.Save(f.Probe); err != nil {
		t.Fatal(err)
	}
	c := runCmd{readFlags: f}
	o, err := c.options(1 << 20)
	if err != nil || o.Drive == nil || o.Drive.Depth != profile.Depth || o.Drive.BlockBytes != profile.BlockBytes {
		t.Errorf("got %+v (%v), want depth %d and blocks of %d bytes", o.Drive, err, profile.Depth, profile.BlockBytes)
	}
	if depth, block, err := f.settings(); err != nil || depth != profile.Depth || block != profile.BlockBytes {
		t.Errorf("replay: got depth %d (%v), want %d", depth, err, profile.Depth)
	}
	f.Depth = 7
	if depth, _, err := f.settings(); err != nil || depth != 7 {
		t.Errorf("replay with --depth 7: got %d (%v)", depth, err)
	}
}
