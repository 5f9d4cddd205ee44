package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSynthWidenHelp(t *testing.T) {
	help := succeed(t, "synth", "widen", "--help")
	golden(t, "help-synth-widen", help)
	for _, want := range []string{"--json", "Exit status:", "130  interrupted"} {
		if !strings.Contains(help, want) {
			t.Errorf("got no %q, want it", want)
		}
	}
}

// TestSynthWiden: the enlarged model is a checkpoint like any, and says the same.
func TestSynthWiden(t *testing.T) {
	folder := t.TempDir()
	wide := filepath.Join(folder, "wide.gguf")
	unchanged(t, func() {
		golden(t, "synth-widen", settle(succeed(t, "synth", "widen", modelFile, "--width", "2", "--ffn", "2", "--out", wide), folder))
	}, modelFile)
	again := filepath.Join(folder, "again.gguf")
	got := decode[widening](t, "synth", "widen", modelFile, "--width", "2", "--ffn", "2", "-o", again)
	a, b := fileBytes(t, wide), fileBytes(t, again)
	if !bytes.Equal(a, b) || int64(len(a)) != got.BytesOut {
		t.Errorf("got %d and %d bytes, reported %d, want the same file twice", len(a), len(b), got.BytesOut)
	}
	seen := decode[inspection](t, "layout", "inspect", wide)
	if seen.ExpertBytes != 4*256*52224 || got.ExpertBytes != 4*52224 || got.Hidden != 512 || got.ExpertWidth != 128 || got.Layers != 8 || got.Experts != 32 || !got.Untied || got.HeadsToo {
		t.Errorf("got %d bytes of experts and %+v, want four times the small model's", seen.ExpertBytes, got)
	}
	args := []string{"--prompt", "And it came to pass", "-n", "12", "--budget", "100%"}
	small := decode[runSummary](t, append([]string{"run", modelFile}, args...)...)
	large := decode[runSummary](t, append([]string{"run", wide}, args...)...)
	if small.Text != large.Text || small.Text == "" {
		t.Errorf("got %q, want %q", large.Text, small.Text)
	}
}

func fileBytes(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSynthWidenErrors(t *testing.T) {
	folder := t.TempDir()
	out := filepath.Join(folder, "wide.gguf")
	text := filepath.Join(folder, "letter.txt")
	if err := os.WriteFile(text, []byte("Dear Sir, this is no model.\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	unchanged(t, func() {
		for _, c := range []struct {
			status int
			args   []string
		}{
			{exitUsage, []string{modelFile, "--width", "3", "--ffn", "1", "--out", out}},
			{exitUsage, []string{modelFile, "--width", "0", "--ffn", "1", "--out", out}},
			{exitUsage, []string{modelFile, "--width", "2", "--ffn", "-4", "--out", out}},
			{exitUsage, []string{modelFile, "--width", "2", "--out", out}},
			{exitInput, []string{modelFile, "--width", "2", "--ffn", "2", "--out", text}},
			{exitInput, []string{modelFile, "--width", "2", "--ffn", "2", "--out", filepath.Join(folder, "none", "wide.gguf")}},
			{exitInput, []string{text, "--width", "2", "--ffn", "2", "--out", out}},
			{exitInput, []string{filepath.Join(folder, "none.gguf"), "--width", "2", "--ffn", "2", "--out", out}},
			{exitFailed, []string{modelFile, "--width", "1024", "--ffn", "1024", "--out", out}},
		} {
			args := append([]string{"synth", "widen"}, c.args...)
			line := settle(strings.Join(args, " "), folder)
			result := invoke(t, args...)
			if result.status != c.status {
				t.Errorf("%s: got status %d (%s), want %d", line, result.status, result.stderr, c.status)
			}
			fmt.Fprintf(&got, "$ outrider %s\n%s[%d]\n\n", line, settle(settleSpace(result.stderr), folder), result.status)
		}
	}, folder)
	golden(t, "synth-widen-errors", got.String())
}

// settleSpace takes out how much space there happens to be.
func settleSpace(text string) string {
	at := strings.Index(text, "not enough space")
	if at < 0 {
		return text
	}
	return text[:at] + "not enough space (where and how much)\n"
}

func TestSynthWidenInterrupted(t *testing.T) {
	folder := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// It is announced, and then the context ends.
	stdout, stderr := &cancelOn{cancel: cancel}, &bytes.Buffer{}
	status := run(ctx, []string{"synth", "widen", modelFile, "--width", "2", "--ffn", "2", "--out", filepath.Join(folder, "wide.gguf")}, stdout, stderr)
	left, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	if status != exitInterrupted || len(left) != 0 || stderr.String() != "outrider: interrupted\n" {
		t.Errorf("got status %d, %q and %v left, want 130 and nothing", status, stderr, left)
	}
}
