package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"outrider/examples/llamacpp/internal/libtest"
	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/trace"
)

// result is what --json prints of what is compared here.
type result struct {
	Mode        string `json:"mode"`
	BudgetBytes int64  `json:"budget_bytes"`
	ExpertBytes int64  `json:"expert_bytes"`
	Texts       []struct {
		Prompt string  `json:"prompt"`
		Text   string  `json:"text"`
		Tokens []int32 `json:"token_ids"`
		Ended  bool    `json:"ended"`
	} `json:"texts"`
	Forced *struct {
		Passages   int     `json:"passages"`
		WarmUp     int     `json:"warm_up"`
		Perplexity float64 `json:"perplexity"`
		Digest     string  `json:"digest"`
	} `json:"forced"`
	Prompt, Decode struct {
		Tokens int64   `json:"tokens"`
		Hits   float64 `json:"hits"`
	}
	PeakBytes int64 `json:"peak_bytes"`
}

// do runs the program on the shipped model and reads what it prints.
func do(t *testing.T, args ...string) (r result) {
	t.Helper()
	args = append([]string{"--lib", libtest.Dir(t), "--model", libtest.Tiny(t), "--json", "--threads", "1"}, args...)
	var out, errs bytes.Buffer
	if code := run(t.Context(), args, &out, &errs); code != exitDone || errs.Len() > 0 {
		t.Fatalf("%v: status %d: %s", args, code, errs.String())
	}
	d := json.NewDecoder(&out)
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Token(); err != io.EOF {
		t.Errorf("%v: more than one object is printed", args)
	}
	return r
}

var modes = []string{"resident", "mmap", "demand", "outrider"}

// tokens are those of each text.
func (r result) tokens() (all [][]int32) {
	for _, t := range r.Texts {
		all = append(all, t.Tokens)
	}
	return all
}

func same(a, b [][]int32) bool { return slices.EqualFunc(a, b, slices.Equal) }

// Every mode gives the same text: of one prompt, of several at once, in a context that
// overflows again and again, with flash attention and without.
func TestModesAgree(t *testing.T) {
	prompts := libtest.ShippedReference(t)
	store := buildStore(t)
	for _, c := range []struct {
		name string
		args []string
		only [][]string // further arguments of the streaming modes, one after another
	}{
		{"one prompt", []string{"-p", prompts[2].Text, "-n", "48"}, [][]string{{}, {"--dense", "mapped"}, {"--store", store}, {"--no-lookahead"}, {"--budget", "100%"}, {"--budget", "1MiB"}}},
		{"three prompts", []string{"-p", prompts[0].Text, "-p", prompts[1].Text, "-p", prompts[3].Text, "-n", "12", "--flash-attention", "off"}, [][]string{{}, {"--budget", "6%"}}},
		{"a full context", []string{"-p", prompts[1].Text, "-n", "300", "--context", "256", "--batch", "64"}, [][]string{{}}},
		{"flash attention off", []string{"-p", prompts[1].Text, "-n", "24", "--flash-attention", "off"}, [][]string{{}, {"--budget", "3%"}}},
		{"flash attention on", []string{"-p", prompts[1].Text, "-n", "24", "--flash-attention", "on"}, [][]string{{}}},
		{"part of a prompt", []string{"-p", prompts[1].Text, "-n", "8", "--prompt-tokens", "5"}, [][]string{{}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var want result
			for _, mode := range modes {
				more := [][]string{{}}
				if mode == "demand" || mode == "outrider" {
					more = c.only
				}
				for _, m := range more {
					got := do(t, slices.Concat(c.args, m, []string{"--mode", mode})...)
					if mode == modes[0] {
						want = got
					}
					if !same(got.tokens(), want.tokens()) || got.Texts[0].Text != want.Texts[0].Text {
						t.Errorf("%s %v: got %v, want %v", mode, m, got.tokens(), want.tokens())
					}
					checkFigures(t, mode, got, want)
				}
			}
		})
	}
}

// checkFigures looks at what does not depend on the machine.
func checkFigures(t *testing.T, mode string, got, want result) {
	t.Helper()
	if got.Mode != mode || got.Prompt.Tokens != want.Prompt.Tokens || got.Decode.Tokens != want.Decode.Tokens || got.Prompt.Tokens == 0 {
		t.Errorf("%s: mode %q, %d and %d tokens, want %d and %d", mode, got.Mode, got.Prompt.Tokens, got.Decode.Tokens, want.Prompt.Tokens, want.Decode.Tokens)
	}
	if streamed := mode == "demand" || mode == "outrider"; (got.ExpertBytes > 0) != streamed || (got.BudgetBytes > 0) != streamed || got.PeakBytes == 0 {
		t.Errorf("%s: experts %d, budget %d, peak %d", mode, got.ExpertBytes, got.BudgetBytes, got.PeakBytes)
	}
}

// buildStore is the shipped model's store.
func buildStore(t *testing.T) string {
	t.Helper()
	cp, err := checkpoint.Read(layout.OS(), libtest.Tiny(t))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := layout.PlanStore(cp, layout.PlanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "tinymoe.outrider")
	if _, err := layout.Build(t.Context(), layout.BuildOptions{Dir: dir, Plan: plan, Checkpoint: &cp}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// passage writes a file of several passages.
func passage(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, p := range libtest.ShippedReference(t) {
		b.WriteString(strings.ReplaceAll(p.Text, "\n\n", "\n") + "\n\n \n\n")
	}
	path := filepath.Join(t.TempDir(), "text.txt")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Given text: the same likeliest tokens and the same perplexity in every mode.
func TestForcedText(t *testing.T) {
	path := passage(t)
	var want result
	for _, mode := range modes {
		got := do(t, "--mode", mode, "--force-text", path, "-n", "0")
		if mode == modes[0] {
			want = got
		}
		if *got.Forced != *want.Forced {
			t.Errorf("%s: got %+v, want %+v", mode, *got.Forced, *want.Forced)
		}
		if got.Decode.Tokens != want.Decode.Tokens {
			t.Errorf("%s: got %d tokens, want %d", mode, got.Decode.Tokens, want.Decode.Tokens)
		}
	}
	if f := want.Forced; f.Passages != 4 || len(f.Digest) != 16 || !(f.Perplexity > 1 && f.Perplexity < 2048) || math.IsInf(f.Perplexity, 0) {
		t.Errorf("got %+v, want 4 passages and a perplexity", *f)
	}
	warm := do(t, "--force-text", path, "-n", "20", "--warm-up", "10")
	if warm.Decode.Tokens != 20 || warm.Forced.WarmUp != 10 {
		t.Errorf("after a warm-up of 10: got %d tokens, %+v, want 20", warm.Decode.Tokens, *warm.Forced)
	}
	other := filepath.Join(t.TempDir(), "other.txt")
	if err := os.WriteFile(other, []byte("Another text altogether."), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := do(t, "--force-text", other, "-n", "0"); got.Forced.Digest == want.Forced.Digest {
		t.Error("another text has the same digest")
	}
}

// The trace has a token for each that was computed, with the phase that it was computed in.
func TestTraceOut(t *testing.T) {
	p := libtest.ShippedReference(t)[1]
	for _, c := range []struct {
		name string
		args []string
	}{
		{"a.trace", nil}, {"b.jsonl", nil}, {"c.jsonl.gz", []string{"--budget", "6%"}}, {"d.trace.zst", []string{"--budget", "100%"}},
	} {
		path := filepath.Join(t.TempDir(), c.name)
		r := do(t, append(c.args, "-p", p.Text, "-n", "10", "--trace-out", path, "--context", "64")...)
		got := readTrace(t, path)
		h := got.Header
		if h.Shape.Layers != 8 || h.Shape.Experts != 32 || h.Shape.TopK != 4 || !h.Weights {
			t.Errorf("%s: header %+v", c.name, h)
		}
		want := append(slices.Clone(p.IDs), r.Texts[0].Tokens[:9]...)
		if !slices.Equal(got.Tokens, want) {
			t.Errorf("%s: got tokens %v, want %v", c.name, got.Tokens, want)
		}
		for i, phase := range got.Phases {
			w := trace.Prefill
			if i >= len(p.IDs) {
				w = trace.Decode
			}
			if phase != w && len(c.args) == 0 {
				t.Errorf("%s: token %d: phase %v, want %v", c.name, i, phase, w)
			}
			if got.Pos[i] != int64(i) || got.Seqs[i] != got.Seqs[0] {
				t.Errorf("%s: token %d: sequence %d, position %d", c.name, i, got.Seqs[i], got.Pos[i])
			}
		}
		var out, errs bytes.Buffer
		args := []string{"--lib", libtest.Dir(t), "--model", libtest.Tiny(t), "-p", "x", "-n", "1", "--trace-out", path}
		if code := run(t.Context(), args, &out, &errs); code != exitFailed || !strings.Contains(errs.String(), "name another file, or remove it first") {
			t.Errorf("%s again: status %d: %s", c.name, code, errs.String())
		}
	}
}

func readTrace(t *testing.T, path string) *trace.Trace {
	t.Helper()
	s, err := trace.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := trace.ReadAll(s, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Text for people: it streams, prompt first, then says what it took.
func TestText(t *testing.T) {
	p := libtest.ShippedReference(t)[0]
	var out, errs bytes.Buffer
	args := []string{"--lib", libtest.Dir(t), "--model", libtest.Tiny(t), "-p", p.Text, "-n", "6"}
	if code := run(t.Context(), args, &out, &errs); code != exitDone || errs.Len() > 0 {
		t.Fatalf("status %d: %s", code, errs.String())
	}
	got := out.String()
	if want := p.Text + " king's house, and"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want it to begin with %q", got, want)
	}
	for _, word := range []string{"qwen3moe", "llama.cpp 0.5.0", "mode outrider: experts 14 MiB, of which 3.4 MiB in memory (25 %)", "prompt", "decode", "memory: "} {
		if !strings.Contains(got, word) {
			t.Errorf("got %q, want %q in it", got, word)
		}
	}
}

func TestStatus(t *testing.T) {
	dir, tiny := libtest.Dir(t), libtest.Tiny(t)
	base := []string{"--lib", dir, "--model", tiny}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name string
		ctx  context.Context
		args []string
		code int
		word string
	}{
		{"help", t.Context(), []string{"--help"}, exitDone, "--force-text"},
		{"no model", t.Context(), []string{"-p", "x"}, exitUsage, "missing flags: --model"},
		{"unknown flag", t.Context(), append(base, "--nonsense"), exitUsage, "see outrider-llama --help"},
		{"unknown mode", t.Context(), append(base, "-p", "x", "--mode", "best"), exitUsage, "--mode"},
		{"nothing to do", t.Context(), base, exitUsage, "give --prompt, --prompt-file or --force-text"},
		{"too much to do", t.Context(), append(base, "-p", "x", "--force-text", "y"), exitUsage, "leave one of them out"},
		{"no tokens", t.Context(), append(base, "-p", "x", "-n", "0"), exitUsage, "-n is 0"},
		{"negative", t.Context(), append(base, "-p", "x", "--threads=-1"), exitUsage, "want at least"},
		{"warm-up alone", t.Context(), append(base, "-p", "x", "--warm-up", "3"), exitUsage, "--warm-up"},
		{"a store for llama.cpp alone", t.Context(), append(base, "-p", "x", "--mode", "mmap", "--store", "s"), exitUsage, "have no meaning with --mode mmap"},
		{"no prompt file", t.Context(), append(base, "--prompt-file", "nowhere"), exitUsage, "--prompt-file"},
		{"no text file", t.Context(), append(base, "--force-text", "nowhere"), exitUsage, "--force-text"},
		{"a prompt of more than the context", t.Context(), append(base, "-p", strings.Repeat("word ", 300), "--context", "256"), exitUsage, "give a larger --context"},
		{"an empty prompt", t.Context(), append(base, "-p", ""), exitUsage, "is empty"},
		{"no library", t.Context(), []string{"--lib", t.TempDir(), "--model", tiny, "-p", "x"}, exitFailed, "llama.cpp cannot be used"},
		{"no such model", t.Context(), []string{"--lib", dir, "--model", "nowhere.gguf", "-p", "x"}, exitFailed, "nowhere.gguf"},
		{"no such model, alone", t.Context(), []string{"--lib", dir, "--model", "nowhere.gguf", "-p", "x", "--mode", "mmap"}, exitFailed, "nowhere.gguf"},
		{"too little", t.Context(), append(base, "-p", "x", "--budget", "4KiB"), exitFailed, "raise the budget"},
		{"no share", t.Context(), append(base, "-p", "x", "--budget", "lots"), exitUsage, "--budget"},
		{"interrupted", ended, append(base, "-p", "x"), exitFailed, "outrider-llama: interrupted"},
		{"interrupted, alone", ended, append(base, "-p", "x", "--mode", "mmap"), exitFailed, "outrider-llama: interrupted"},
	} {
		var out, errs bytes.Buffer
		code := run(c.ctx, c.args, &out, &errs)
		if text := out.String() + errs.String(); code != c.code || !strings.Contains(text, c.word) {
			t.Errorf("%s: status %d: %q, want %d and %q", c.name, code, text, c.code, c.word)
		}
		if code != exitDone && out.Len() > 0 {
			t.Errorf("%s: printed %q", c.name, out.String())
		}
	}
}

func TestLikeliest(t *testing.T) {
	for _, c := range []struct {
		logits []float32
		want   int32
	}{{[]float32{1}, 0}, {[]float32{1, 3, 2}, 1}, {[]float32{2, 3, 3}, 1}, {[]float32{-5, -1, -2}, 1}} {
		if got := likeliest(c.logits); got != c.want {
			t.Errorf("%v: got %d, want %d", c.logits, got, c.want)
		}
	}
	if got := logProbability([]float32{1000, 1000}, 1); math.Abs(got+math.Ln2) > 1e-12 {
		t.Errorf("one of two: got %g, want -ln 2", got)
	}
}
