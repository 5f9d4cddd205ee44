package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"strings"
	"time"

	"outrider/examples/llamacpp/llama"
	"outrider/internal/costs"
)

// forcedText is what a model made of given text.
type forcedText struct {
	Passages int `json:"passages"`
	WarmUp   int `json:"warm_up"` // tokens before the measurement
	// Perplexity is of all tokens but the first of each passage.
	Perplexity float64 `json:"perplexity"`
	// Digest is of the likeliest token at each place: equal for equal arms.
	Digest string `json:"digest"`
}

// force decodes passages one token at a time, as a user's text would come, in turn. A
// small model's own text runs in circles and flatters every cache. The first warm
// tokens are not measured.
func (a *arm) force(ctx context.Context, path string, warm, n int) (*measured, error) {
	if n > 0 {
		n += warm
	}
	passages, err := a.passages(path, n)
	if err != nil {
		return nil, err
	}
	f := &forcedText{Passages: len(passages), WarmUp: warm}
	before, begun := a.stats(), time.Now()
	sum := fnv.New64a()
	var loss float64
	var tokens, told int64
	for _, p := range passages {
		for at := range p {
			if tokens == int64(warm) {
				before, begun = a.stats(), time.Now()
			}
			items := []llama.Item{{Token: p[at], Position: int32(at), Logits: true}}
			err := a.Decode(ctx, items, func(_ int, logits []float32) error {
				fmt.Fprintf(sum, "%d,", likeliest(logits))
				if at+1 < len(p) {
					loss -= logProbability(logits, p[at+1])
					told++
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
			tokens++
		}
		if err := a.End(0); err != nil {
			return nil, err
		}
	}
	m := &measured{forced: f, decode: costs.Between(before, a.stats(), time.Since(begun))}
	m.decode.Tokens = max(tokens-int64(warm), 0)
	f.Perplexity, f.Digest = math.Exp(loss/float64(max(told, 1))), fmt.Sprintf("%016x", sum.Sum64())
	return m, nil
}

// passages reads the file: n tokens in all, 0 for everything; of a passage no more
// than the context holds.
func (a *arm) passages(path string, n int) (out [][]int32, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, usagef("--force-text: %v", err)
	}
	left := n
	for p := range strings.SplitSeq(strings.ReplaceAll(string(b), "\r\n", "\n"), "\n\n") {
		if p = strings.TrimSpace(p); p == "" {
			continue
		}
		tokens := a.model.Tokenize(p)
		tokens = tokens[:min(len(tokens), a.context)]
		if n > 0 {
			tokens = tokens[:min(len(tokens), left)]
			left -= len(tokens)
		}
		if len(tokens) > 0 {
			out = append(out, tokens)
		}
	}
	if len(out) == 0 {
		return nil, usagef("--force-text: %s holds no text", path)
	}
	return out, nil
}

// logProbability is that of a token.
func logProbability(logits []float32, token int32) float64 {
	most := float64(logits[likeliest(logits)])
	var sum float64
	for _, v := range logits {
		sum += math.Exp(float64(v) - most)
	}
	return float64(logits[token]) - most - math.Log(sum)
}
