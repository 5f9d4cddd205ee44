package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"outrider/trace"
)

func canceller(t *testing.T) (context.Context, *cancelOn) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, &cancelOn{cancel: cancel}
}

func TestRunWritesTheSameTextUnderEveryPolicy(t *testing.T) {
	dir := newStore(t)
	flags := []string{"--prompt", "In the beginning God created", "-n", "12", "--temperature", "0.8", "--seed", "7"}
	unchanged(t, func() {
		want := decode[runSummary](t, append([]string{"run", modelFile, "--budget", "100%"}, flags...)...)
		if len(want.Tokens) == 0 || want.Stop != "length" || want.Decode.Tokens != 11 {
			t.Fatalf("got %+v, want 12 tokens", want)
		}
		for _, more := range [][]string{{"--policy", "outrider"}, {"--policy", "keep"}, {"--policy", "lru"}, {"--policy", "outrider", "--budget", "512KiB"}, {"--model", modelFile}} {
			got := decode[runSummary](t, slices.Concat([]string{"run", dir}, flags, more)...)
			if !slices.Equal(got.Tokens, want.Tokens) || got.Text != want.Text {
				t.Errorf("%v: got %q, want %q", more, got.Text, want.Text)
			}
			if got.Decode.Hits <= 0 || got.Decode.Hits >= 1 || got.Decode.BytesPerToken <= 0 {
				t.Errorf("%v: got hits %v, %v bytes a token, want a streamed run", more, got.Decode.Hits, got.Decode.BytesPerToken)
			}
		}
	}, dir, modelFile)
}

// TestRunLooksAhead: in decoding, from all layers but the last, unless told not to; the
// text is the same.
func TestRunLooksAhead(t *testing.T) {
	args := []string{"run", newStore(t), "--prompt", "In the beginning", "-n", "9"}
	on, off := decode[runSummary](t, args...), decode[runSummary](t, append(args, "--no-lookahead")...)
	if l := on.Lookahead; l == nil || l.Told+l.Lost != 8*7 || l.Told == 0 {
		t.Errorf("got %+v, want 8 tokens times 7 layers", l)
	}
	if off.Lookahead != nil {
		t.Errorf("--no-lookahead: got %+v, want none", off.Lookahead)
	}
	if !slices.Equal(on.Tokens, off.Tokens) {
		t.Errorf("got tokens %v with look-ahead, %v without", on.Tokens, off.Tokens)
	}
	if lru := decode[runSummary](t, append(args, "--policy", "lru")...); lru.Lookahead != nil {
		t.Errorf("policy lru: got %+v, want none: nothing is forecast", lru.Lookahead)
	}
	if text := succeed(t, args...); !strings.Contains(text, "look-ahead  from ") {
		t.Errorf("got %q, want how much was looked ahead", text)
	}
}

func TestRunStreamsThenTellsTheCost(t *testing.T) {
	out := succeed(t, "run", newStore(t), "--prompt", "In the beginning", "-n", "5")
	for _, want := range []string{"In the beginning", "budget  ", "25.0 % of all experts, policy outrider", "stall µs/token", "\nprompt ", "\ndecode "} {
		if !strings.Contains(out, want) {
			t.Errorf("got %q, want %q in it", out, want)
		}
	}
	if !strings.HasPrefix(out, "In the beginning") {
		t.Errorf("got %q, want the text first", out)
	}
}

func TestRunRecordsATraceThatOthersRead(t *testing.T) {
	dir := newStore(t)
	for _, name := range []string{"t.trace", "t.jsonl.gz"} {
		path := filepath.Join(t.TempDir(), name)
		got := decode[runSummary](t, "run", dir, "--prompt", "In the beginning", "-n", "6", "--trace-out", path)
		file, err := trace.OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all, err := trace.ReadAll(file, 0)
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		// The last token is not run through the model any more.
		if want := got.PromptTokens + 5; all.Len() != want || all.Header.Model != "tinymoe" {
			t.Errorf("%s: got %d tokens of %q, want %d of tinymoe", name, all.Len(), all.Header.Model, want)
		}
		if got := all.Tokens[all.Len()-1]; got < 0 {
			t.Errorf("%s: got token id %d, want ids", name, got)
		}
		succeed(t, "layout", "build", modelFile, "--trace", path, "--out", filepath.Join(t.TempDir(), "s"))
	}
}

func TestRunNamesTheFlagForMissingDenseWeights(t *testing.T) {
	folder := t.TempDir()
	moved := filepath.Join(folder, "moved.gguf")
	data, err := os.ReadFile(modelFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(moved, data, 0o666); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(folder, "s.outrider")
	succeed(t, "layout", "build", moved, "--out", dir)
	if err := os.Remove(moved); err != nil {
		t.Fatal(err)
	}
	got := invoke(t, "run", dir, "--prompt", "x", "-n", "2")
	if got.status != exitInput || !strings.Contains(got.stderr, "--model") || !strings.Contains(got.stderr, moved) {
		t.Errorf("got status %d, %q, want 3 naming %s and --model", got.status, got.stderr, moved)
	}
	succeed(t, "run", dir, "--prompt", "x", "-n", "2", "--model", modelFile)
}

func TestRunInterrupted(t *testing.T) {
	ctx, out := canceller(t)
	status := run(ctx, []string{"run", modelFile, "--prompt", "In the beginning", "-n", "400"}, out, io.Discard)
	if status != exitInterrupted {
		t.Errorf("got status %d, want 130", status)
	}
}
