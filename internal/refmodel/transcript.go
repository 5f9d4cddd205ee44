package refmodel

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// Transcript is a greedy continuation with all logits on the way: what two
// runs must share bit for bit, whatever the budget, the lanes or the order in
// which experts arrive.
type Transcript struct {
	Tokens []int32     // chosen, one a step
	Logits [][]float32 // that each was chosen from
}

// Transcribe starts a new sequence with the prompt and continues it greedily by
// n tokens, end token or not.
func (g *Generator) Transcribe(ctx context.Context, prompt []int32, n int) (Transcript, error) {
	var t Transcript
	if err := g.Reset(); err != nil {
		return t, err
	}
	if err := g.Prefill(ctx, prompt); err != nil {
		return t, err
	}
	for i := range n {
		t.Logits = append(t.Logits, slices.Clone(g.Logits()))
		t.Tokens = append(t.Tokens, Greedy{}.Sample(g.Logits()))
		if i == n-1 {
			break
		}
		if err := g.Decode(ctx, t.Tokens[i]); err != nil {
			return t, err
		}
	}
	return t, nil
}

// Difference names the first place where two transcripts are not bit-identical,
// or is empty.
func (t Transcript) Difference(u Transcript) string {
	if len(t.Tokens) != len(u.Tokens) {
		return fmt.Sprintf("%d tokens against %d", len(t.Tokens), len(u.Tokens))
	}
	for i := range t.Tokens {
		for id, a := range t.Logits[i] {
			if b := u.Logits[i][id]; math.Float32bits(a) != math.Float32bits(b) {
				return fmt.Sprintf("step %d, logit of token %d: %v against %v", i, id, a, b)
			}
		}
		if t.Tokens[i] != u.Tokens[i] {
			return fmt.Sprintf("step %d: token %d against %d", i, t.Tokens[i], u.Tokens[i])
		}
	}
	return ""
}
