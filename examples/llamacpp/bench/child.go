package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"outrider/internal/costs"
)

// result is what outrider-llama --json prints, as far as it is of interest here.
type result struct {
	About       string        `json:"about"`
	Library     string        `json:"library"`
	BudgetBytes int64         `json:"budget_bytes"`
	ExpertBytes int64         `json:"expert_bytes"`
	DenseBytes  int64         `json:"dense_bytes"`
	Texts       []text        `json:"texts,omitempty"`
	Forced      *forced       `json:"forced,omitempty"`
	Prompt      costs.Figures `json:"prompt"`
	Decode      costs.Figures `json:"decode"`
	PeakBytes   int64         `json:"peak_bytes"`
	Direct      bool          `json:"direct"`
	Engine      string        `json:"engine,omitempty"`
	Note        string        `json:"note,omitempty"`
}

type text struct {
	Tokens []int32 `json:"token_ids"`
}

type forced struct {
	Passages   int     `json:"passages"`
	Perplexity float64 `json:"perplexity"`
	Digest     string  `json:"digest"`
}

// program is a built outrider-llama.
type program struct {
	path             string
	lib, model, text string
	store            string
}

// build builds the command from this module, into a folder.
func build(ctx context.Context, dir string) (string, error) {
	out := filepath.Join(dir, "outrider-llama")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", out, "outrider/examples/llamacpp/outrider-llama")
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build outrider-llama: %w: %s: run bench in the folder examples/llamacpp, or name a built one by --command", err, bytes.TrimSpace(said))
	}
	return out, nil
}

// arguments are those of a step.
func (p *program) arguments(s step) []string {
	args := []string{"--json", "--lib", p.lib, "--model", p.model, "--mode", s.Arm}
	if streams(s.Arm) {
		args = append(args, "--budget", s.amount)
		if p.store != "" {
			args = append(args, "--store", p.store)
		}
	}
	args = append(args, "-n", fmt.Sprint(s.Tokens))
	switch s.Purpose {
	case speed:
		return append(args, "--force-text", p.text, "--warm-up", fmt.Sprint(s.WarmUp))
	case prefill:
		return append(args, "--prompt-file", p.text, "--prompt-tokens", fmt.Sprint(s.Prompt))
	}
	return append(args, "--prompt", prompts[s.Prompt])
}

// errMemory: the kernel ended the process.
var errMemory = errors.New("killed in a full memory cgroup")

// run runs a step, in the group if there is one.
func (p *program) run(ctx context.Context, s step, g *group) (*result, error) {
	line := append([]string{p.path}, p.arguments(s)...)
	if g != nil {
		line = g.wrap(p.path, line[1:])
	}
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.WaitDelay = 5 * time.Second
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		if g != nil && g.killed() {
			err = errors.Join(errMemory, err)
		}
		return nil, fmt.Errorf("%s: %w: %s", s, err, lastWords(said.String()))
	}
	r := new(result)
	if err := json.Unmarshal(out.Bytes(), r); err != nil {
		return nil, fmt.Errorf("%s: its JSON: %w", s, err)
	}
	return r, nil
}

// lastWords is the end of what a process said.
func lastWords(s string) string {
	const most = 600
	s = strings.TrimSpace(s)
	return s[max(0, len(s)-most):]
}
