package main

import (
	"context"
	"os"
	"time"

	"outrider/examples/llamacpp/llama"
	"outrider/internal/costs"
)

// measured is what a run did and took.
type measured struct {
	texts          []generated
	prompt, decode costs.Cost
	forced         *forcedText // with --force-text
}

// generated is one text.
type generated struct {
	Prompt string  `json:"prompt"`
	Text   string  `json:"text"`
	Tokens []int32 `json:"token_ids"`
	Ended  bool    `json:"ended"` // by the model, not by -n
}

// sequence is a text in the making.
type sequence struct {
	generated
	next     int32 // token that was chosen and is not decoded yet
	position int32
}

// generator goes on from prompts, all of them at once.
type generator struct {
	arm  *arm
	seqs []*sequence
	keep int32 // tokens at the beginning that a shift never drops
	text func(string) error
}

// prompts are the texts to go on from.
func (c *command) prompts() ([]string, error) {
	if c.PromptFile == "" {
		return c.Prompt, nil
	}
	b, err := os.ReadFile(c.PromptFile)
	if err != nil {
		return nil, usagef("--prompt-file: %v", err)
	}
	return append(c.Prompt[:len(c.Prompt):len(c.Prompt)], string(b)), nil
}

// generate goes on from each prompt by n tokens.
func (a *arm) generate(ctx context.Context, prompts []string, cut, n int, text func(string) error) (*measured, error) {
	g := &generator{arm: a, text: text, keep: 4}
	m := &measured{}
	before, begun := a.stats(), time.Now()
	if err := g.begin(ctx, prompts, cut); err != nil {
		return nil, err
	}
	m.prompt = costs.Between(before, a.stats(), time.Since(begun))
	m.prompt.Tokens = g.tokens()
	before, begun = a.stats(), time.Now()
	var decoded int64
	for i := range n {
		computed, err := g.step(ctx, i+1 < n)
		if err != nil {
			return nil, err
		}
		if computed == 0 {
			break
		}
		decoded += int64(computed)
	}
	m.decode = costs.Between(before, a.stats(), time.Since(begun))
	m.decode.Tokens = decoded
	for _, s := range g.seqs {
		s.Text = a.model.Text(s.Tokens)
		m.texts = append(m.texts, s.generated)
	}
	return m, nil
}

// begin computes the prompts.
func (g *generator) begin(ctx context.Context, prompts []string, cut int) error {
	var items []llama.Item
	for i, p := range prompts {
		tokens := g.arm.model.Tokenize(p)
		if cut > 0 && cut < len(tokens) {
			tokens = tokens[:cut]
		}
		if len(tokens) == 0 {
			return usagef("prompt %d is empty, and this model begins with no token of its own: give some text", i+1)
		}
		if len(prompts)*len(tokens) >= g.arm.context {
			return usagef("prompt %d has %d tokens, and the context %d for %d: give a larger --context", i+1, len(tokens), g.arm.context, len(prompts))
		}
		for at, t := range tokens {
			items = append(items, llama.Item{Token: t, Position: int32(at), Sequence: int32(i), Logits: at == len(tokens)-1})
		}
		g.seqs = append(g.seqs, &sequence{generated: generated{Prompt: g.arm.model.Text(tokens)}, position: int32(len(tokens))})
	}
	return g.arm.Decode(ctx, items, func(i int, logits []float32) error {
		g.seqs[items[i].Sequence].next = likeliest(logits)
		return nil
	})
}

// tokens is how many the prompts have.
func (g *generator) tokens() (n int64) {
	for _, s := range g.seqs {
		n += int64(s.position)
	}
	return n
}

// step takes the token that was chosen for each text and, if more are wanted, computes
// what comes behind them. It returns how many tokens it computed.
func (g *generator) step(ctx context.Context, more bool) (int, error) {
	var items []llama.Item
	for i, s := range g.seqs {
		if s.Ended {
			continue
		}
		if g.arm.model.Ends(s.next) {
			s.Ended = true
			continue
		}
		s.Tokens = append(s.Tokens, s.next)
		if g.text != nil && len(g.seqs) == 1 {
			if err := g.text(string(g.arm.model.Piece(s.next))); err != nil {
				return 0, err
			}
		}
		if err := g.shift(int32(i), s); err != nil {
			return 0, err
		}
		items = append(items, llama.Item{Token: s.next, Position: s.position, Sequence: int32(i), Logits: true})
		s.position++
	}
	if len(items) == 0 || !more {
		return 0, nil
	}
	return len(items), g.arm.Decode(ctx, items, func(i int, logits []float32) error {
		g.seqs[items[i].Sequence].next = likeliest(logits)
		return nil
	})
}

// shift makes room in a full context: half of what is behind the beginning goes.
func (g *generator) shift(i int32, s *sequence) error {
	if int(s.position) < g.arm.context/len(g.seqs) {
		return nil
	}
	drop := (s.position - g.keep) / 2
	if err := g.arm.Shift(i, g.keep, drop); err != nil {
		return err
	}
	s.position -= drop
	return nil
}

// likeliest is the token with the largest logit, of equals the lower.
func likeliest(logits []float32) int32 {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return int32(best)
}
