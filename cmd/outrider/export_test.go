package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What was exported is a checkpoint with the same expert bytes: the store verifies
// against it.
func TestExportIsTheCheckpointsExperts(t *testing.T) {
	for _, tt := range []struct {
		name   string
		model  string
		format string
		shards string
		more   []string // what the expert tensors alone do not tell
	}{
		{"gguf", modelFile, "gguf", "4MiB", nil},
		{"safetensors", newCheckpoint(t, "gpt-oss"), "safetensors", "50KB", []string{"--top-k", "2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			folder := t.TempDir()
			store, out := filepath.Join(folder, "s.outrider"), filepath.Join(folder, "experts")
			built := decode[buildSummary](t, "layout", "build", tt.model, "--out", store)
			unchanged(t, func() {
				got := decode[exportSummary](t, "layout", "export", store, "--out", out, "--shard", tt.shards)
				if got.ID != built.ID || got.Format != tt.format || got.Bytes != built.BytesIn || got.Tensors == 0 || len(got.Files) < 2 {
					t.Errorf("got %+v, want all %d bytes as %s in several files", got, built.BytesIn, tt.format)
				}
			}, store)
			checked := decode[verifySummary](t, append([]string{"layout", "verify", store, "--source", out}, tt.more...)...)
			if !checked.OK || !checked.Compared {
				t.Errorf("got %+v, want every byte equal", checked)
			}
			text := succeed(t, "layout", "export", store, "--out", filepath.Join(folder, "again"))
			if !strings.Contains(text, "checksums compared") || !strings.Contains(text, built.ID) {
				t.Errorf("got %s, want what was written", text)
			}
		})
	}
}

func TestExportErrors(t *testing.T) {
	dir := newStore(t)
	folder := filepath.Dir(dir)
	out, damaged := filepath.Join(folder, "out"), newStore(t)
	flip(t, filepath.Join(damaged, "lane-0.bin"), 5000)
	unchanged(t, func() {
		for _, tt := range []struct {
			args   []string
			status int
			word   string
		}{
			{[]string{filepath.Join(folder, "missing"), "--out", out}, exitInput, "not an outrider store"},
			{[]string{modelFile, "--out", out}, exitInput, "not a directory"},
			{[]string{dir}, exitUsage, "--out"},
			{[]string{dir, "--out", dir}, exitInput, "already exists"},
			{[]string{dir, "--out", filepath.Join(out, "deeper")}, exitInput, "no such file"},
			{[]string{dir, "--out", out, "--format", "safetensors"}, exitInput, "gguf"},
			{[]string{dir, "--out", out, "--format", "onnx"}, exitUsage, "want gguf or safetensors"},
			{[]string{dir, "--out", out, "--shard", "10%"}, exitUsage, "not a share"},
			{[]string{"../../layout/testdata/golden-v1", "--out", out}, exitInput, "does not name its source tensors"},
			{[]string{damaged, "--out", out}, exitInput, "lane-0.bin"},
		} {
			got := invoke(t, append([]string{"layout", "export"}, tt.args...)...)
			if got.status != tt.status || !strings.Contains(got.stderr, tt.word) || strings.Count(got.stderr, "\n") != 1 || got.stdout != "" {
				t.Errorf("layout export %v: got status %d, %q, want %d and one line that says %q", tt.args, got.status, got.stderr, tt.status, tt.word)
			}
			if _, err := os.Stat(out); err == nil {
				t.Errorf("layout export %v: %s is there, want nothing", tt.args, out)
			}
		}
	}, folder)
}

func TestExportInterruptedLeavesNothing(t *testing.T) {
	dir, folder := newStore(t), t.TempDir()
	ctx, out := canceller(t)
	_, _ = out.Write(nil) // ended before it begins
	var stderr strings.Builder
	status := run(ctx, []string{"layout", "export", dir, "--out", filepath.Join(folder, "out")}, io.Discard, &stderr)
	if status != exitInterrupted || stderr.String() != "outrider: interrupted\n" {
		t.Errorf("got status %d and %q, want 130 and a word", status, stderr.String())
	}
	wantEmpty(t, folder)
}
