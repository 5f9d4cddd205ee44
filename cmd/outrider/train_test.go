package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"outrider/router"
	"outrider/router/learned"
	"outrider/runtime"
	"outrider/trace"
)

// trainedNetwork trains a little on the shipped trace and returns the file.
func trainedNetwork(t *testing.T, flags ...string) (path string, done training) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "tiny.learned")
	args := append([]string{"train", tinyTrace, "--out", path, "--max-tokens", "300", "--epochs", "2"}, flags...)
	return path, decode[training](t, args...)
}

func loadNetwork(t *testing.T, path string) *learned.Model {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := learned.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestTrainHelp(t *testing.T) {
	help := succeed(t, "train", "--help")
	golden(t, "help-train", help)
	for _, want := range []string{"--json", "Exit status:", "130  interrupted"} {
		if !strings.Contains(help, want) {
			t.Errorf("help: got no %q, want it", want)
		}
	}
}

func TestTrain(t *testing.T) {
	var path string
	var done training
	unchanged(t, func() { path, done = trainedNetwork(t, "--seed", "3") }, tinyTrace)
	r := done.Report
	if info, err := os.Stat(path); err != nil || info.Size() != done.Bytes || done.Out != path {
		t.Errorf("got %+v, %v, want the file of %d bytes", info, err, done.Bytes)
	}
	if r.TrainTokens+r.HeldOutTokens != 300 || len(r.Epochs) == 0 || len(r.Epochs) > 2 || len(done.Traces) != 1 || done.Traces[0].Tokens != 300 {
		t.Errorf("got %+v, want at most two epochs on 300 tokens", done)
	}
	m := loadNetwork(t, path)
	if m.Name() != done.Traces[0].Model || m.Dims().Shape.Layers != 8 {
		t.Errorf("got a network for %q with %+v, want the trace's model", m.Name(), m.Dims())
	}
	again, _ := trainedNetwork(t, "--seed", "3")
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(again)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("the same seed: got another file")
	}
}

// TestTrainText holds the report's words, not its figures.
func TestTrainText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tiny.learned")
	text := succeed(t, "train", tinyTrace, "--out", path, "--max-tokens", "300", "--epochs", "1")
	for _, want := range []string{
		tinyTrace + ": ", "trained on", "held out", "network", "epochs         1, the best", "held-out loss", "of the online forecast", "written        " + path,
		"recall@k online", "\nnear ", "\nahead ", "\nkeep ", " new ", " trained ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got no %q, want it in:\n%s", want, text)
		}
	}
}

// TestTrainOneSequence: of a single sequence the end is held out, and the text says it.
func TestTrainOneSequence(t *testing.T) {
	folder := t.TempDir()
	one := filepath.Join(folder, "one.trace")
	succeed(t, "trace", "synth", "markov", "--out", one, "--layers", "3", "--experts", "8", "--top-k", "2", "--tokens", "200", "--sequences", "1")
	text := succeed(t, "train", one, "--out", filepath.Join(folder, "one.learned"), "--epochs", "1")
	if !strings.Contains(text, "held out       40 tokens of the end of the only sequence\n") {
		t.Errorf("got %q, want that the end was held out", text)
	}
}

func TestTrainOverwritesOnlyByForce(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "tiny.learned")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"train", tinyTrace, "--out", path, "--max-tokens", "300", "--epochs", "1"}
	unchanged(t, func() {
		if got := invoke(t, args...); got.status != exitInput || !strings.Contains(got.stderr, "--force") {
			t.Errorf("got status %d, %q, want 3 and how to replace it", got.status, got.stderr)
		}
	}, folder)
	// Also what appears while training goes on.
	other, _ := trainedNetwork(t)
	m := loadNetwork(t, other)
	unchanged(t, func() {
		if _, err := writeNetwork(path, m, false); err == nil {
			t.Error("a file that appeared meanwhile: got no error, want one")
		}
	}, folder)
	succeed(t, append(args, "--force")...)
	loadNetwork(t, path)
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v, want the file alone", entries, err)
	}
}

func TestTrainErrors(t *testing.T) {
	folder := t.TempDir()
	text, missing, out := filepath.Join(folder, "letter.txt"), filepath.Join(folder, "missing"), filepath.Join(folder, "out.learned")
	if err := os.WriteFile(text, []byte("Dear Sir, this is no trace.\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	unchanged(t, func() {
		for _, c := range []struct {
			status int
			args   []string
		}{
			{exitInput, []string{text, "--out", out}},
			{exitInput, []string{missing, "--out", out}},
			{exitInput, []string{tinyTrace, "--out", text}},
			{exitInput, []string{tinyTrace, "--out", filepath.Join(missing, "out.learned")}},
			{exitInput, []string{tinyTrace, otherTrace, "--out", out, "--max-tokens", "50"}},
			{exitInput, []string{tinyTrace, "--out", out, "--max-tokens", "20"}},
			{exitUsage, []string{tinyTrace}},
			{exitUsage, []string{"--out", out}},
			{exitUsage, []string{tinyTrace, "--out", out, "--epochs", "0"}},
			{exitUsage, []string{tinyTrace, "--out", out, "--patience", "0"}},
			{exitUsage, []string{tinyTrace, "--out", out, "--hold-out", "100%"}},
			{exitUsage, []string{tinyTrace, "--out", out, "--hold-out", "0"}},
			{exitUsage, []string{tinyTrace, "--out", out, "--memory", "25%"}},
			{exitUsage, []string{tinyTrace, "--out", out, "--max-tokens=-1"}},
		} {
			got := invoke(t, append([]string{"train"}, c.args...)...)
			line := strings.Join(c.args, " ")
			if got.status != c.status {
				t.Errorf("outrider train %s: got status %d (%s), want %d", line, got.status, got.stderr, c.status)
			}
			if n := strings.Count(got.stderr, "\n"); n != 1 || !strings.HasPrefix(got.stderr, "outrider: ") || got.stdout != "" {
				t.Errorf("outrider train %s: got %q and %q, want one line from outrider on stderr", line, got.stderr, got.stdout)
			}
			fmt.Fprintf(&said, "$ outrider train %.150s\n%s[%d]\n\n", settle(line, folder), settle(got.stderr, folder), got.status)
		}
	}, folder)
	golden(t, "train-errors", said.String())
}

func TestTrainInterrupted(t *testing.T) {
	folder := t.TempDir()
	ctx, out := canceller(t)
	out.cancel()
	if status := run(ctx, []string{"train", tinyTrace, "--out", filepath.Join(folder, "out.learned")}, out, out); status != exitInterrupted {
		t.Errorf("got status %d, want 130", status)
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 0 {
		t.Errorf("got %v, %v, want nothing left", entries, err)
	}
}

// asked counts what a runtime asks of a predictor.
type asked struct {
	router.Predictor
	scores *atomic.Int64
}

func (a asked) NewHistory() router.History { return askedHistory{a.Predictor.NewHistory(), a.scores} }

type askedHistory struct {
	router.History
	scores *atomic.Int64
}

func (h askedHistory) Score(layer int, dst []float32) {
	h.scores.Add(1)
	h.History.Score(layer, dst)
}

// TestRuntimeTakesNetwork: a network that was trained forecasts for a runtime.
func TestRuntimeTakesNetwork(t *testing.T) {
	path, _ := trainedNetwork(t)
	p, err := learned.New(loadNetwork(t, path))
	if err != nil {
		t.Fatal(err)
	}
	var scores atomic.Int64
	rt, err := runtime.Open(t.Context(), newStore(t), runtime.Options{BudgetBytes: 4 << 20, Predictor: asked{p, &scores}})
	if err != nil {
		t.Fatal(err)
	}
	replayed := replayThrough(t, rt, 40)
	if err := rt.Close(); err != nil {
		t.Fatal(err)
	}
	if stats := rt.Stats(); stats.Uses != replayed || scores.Load() == 0 {
		t.Errorf("got %d uses and %d forecasts, want %d uses and forecasts by the network", stats.Uses, scores.Load(), replayed)
	}
}

// replayThrough has a runtime serve what the shipped trace's first tokens chose,
// and tells how many layers that were.
func replayThrough(t *testing.T, rt *runtime.Runtime, tokens int) (uses int64) {
	t.Helper()
	f, err := trace.OpenFile(tinyTrace)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tr, err := trace.ReadAll(f, tokens)
	if err != nil {
		t.Fatal(err)
	}
	s := rt.NewSession()
	defer s.Close()
	for i := range tr.Len() {
		s.Step(trace.Decode, tr.Tokens[i:i+1])
		for l := range tr.Header.Shape.Layers {
			experts, weights := tr.Row(i, l)
			use, err := s.Use(t.Context(), l, []router.Choice{{Experts: experts, Weights: weights}})
			if err != nil {
				t.Fatal(err)
			}
			if err := use.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			use.Release()
			uses++
		}
	}
	return uses
}
