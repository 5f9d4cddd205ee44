package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"outrider/examples/llamacpp/internal/libtest"
	"outrider/examples/llamacpp/llama"
	"outrider/experts"
	"outrider/runtime"
)

// long is a prompt of more tokens than a small budget takes at once.
func long(t testing.TB, n int) (tokens []int32) {
	t.Helper()
	for len(tokens) < n {
		for _, p := range libtest.ShippedReference(t) {
			tokens = append(tokens, p.IDs...)
		}
	}
	return tokens[:n]
}

// all wants the logits of every token.
func all(items []llama.Item) []llama.Item {
	for i := range items {
		items[i].Logits = true
	}
	return items
}

// A prompt of more tokens than fit is computed in pieces, and each piece as llama.cpp
// alone computes it: bit for bit. The pieces are what moves the last bits of logits, as
// another --batch moves them in llama.cpp alone.
func TestCutPrompt(t *testing.T) {
	path, tokens, o := libtest.Tiny(t), long(t, 320), llama.ContextOptions{Tokens: 512}
	alone := stockModel(t, path, false)
	for _, c := range []struct {
		name  string
		share float64
		flash string
	}{
		{"floor", 0, "auto"}, {"a tenth", 0.1, "auto"}, {"a tenth, flash attention off", 0.1, "off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o.FlashAttention = c.flash
			m := openModel(t, Options{Path: path}, c.share)
			d, _ := newDecoder(t, m, DecoderOptions{ContextOptions: o})
			got, pieces := inPieces(t, d, all(prompt(0, tokens)))
			if d.Cuts == 0 || len(pieces) < 3 {
				t.Errorf("got %d cuts and pieces of %v tokens, want some", d.Cuts, pieces)
			}
			ctx, _ := stock(t, alone, o)
			want := fed(t, ctx, all(prompt(0, tokens)), pieces)
			if d := got.difference(want); d != "" {
				t.Errorf("pieces of %v tokens: not as llama.cpp alone: %s", pieces, d)
			}
			_, e := stock(t, alone, o)
			var once text
			if err := e(all(prompt(0, tokens)), once.add); err != nil {
				t.Fatal(err)
			}
			st := wellKept(t, c.name, m.Runtime)
			t.Logf("%d cuts, %d pieces; against llama.cpp in one piece %s; hits %.3f", d.Cuts, len(pieces), got.distance(once), st.HitRate())
		})
	}
}

// inPieces decodes and tells how many tokens each pass had.
func inPieces(t testing.TB, d *Decoder, items []llama.Item) (out text, pieces []int) {
	t.Helper()
	end := 0
	err := d.Decode(context.Background(), items, func(i int, logits []float32) error {
		if i == end {
			pieces = append(pieces, len(d.work.all))
			end += len(d.work.all)
		}
		return out.add(i, logits)
	})
	if err != nil {
		t.Fatal(err)
	}
	if end != len(items) {
		t.Fatalf("pieces of %v tokens, want %d in all", pieces, len(items))
	}
	return out, pieces
}

// add keeps a token's logits.
func (a *text) add(_ int, logits []float32) error {
	a.logits = append(a.logits, slices.Clone(logits))
	a.tokens = append(a.tokens, likeliest(logits))
	return nil
}

// distance says how far two texts are apart.
func (a text) distance(b text) string {
	var most float32
	other := 0
	for i := range a.logits {
		for j, v := range a.logits[i] {
			most = max(most, v-b.logits[i][j], b.logits[i][j]-v)
		}
		if a.tokens[i] != b.tokens[i] {
			other++
		}
	}
	return fmt.Sprintf("logits differ by %.2g at most, %d of %d likeliest tokens", most, other, len(a.tokens))
}

// A budget below one layer of one token is refused with the number that is needed, and
// that number is enough.
func TestBelowFloor(t *testing.T) {
	path := libtest.Tiny(t)
	least := floor(t, Options{Path: path})
	_, err := Open(t.Context(), lib(t), Options{Path: path, Budget: func(int64) int64 { return least - 1 }})
	if !errors.Is(err, experts.ErrBelowFloor) {
		t.Errorf("a byte less than %d: got %v, want ErrBelowFloor", least, err)
	}
	m := openModel(t, Options{Path: path}, 0)
	if got := m.Runtime.Stats().Budget; got != least {
		t.Errorf("got a budget of %d, want %d", got, least)
	}
	d, _ := newDecoder(t, m, DecoderOptions{ContextOptions: llama.ContextOptions{Tokens: 64}})
	if got := d.certain(); got != 1 {
		t.Errorf("got %d tokens that surely fit in the least budget, want 1", got)
	}
}

// Three sequences decoded together: bit for bit what llama.cpp alone makes of the same
// batches, and the same tokens as each sequence alone.
func TestSequences(t *testing.T) {
	path, prompts, n := libtest.Tiny(t), libtest.ShippedReference(t)[:3], 24
	o := llama.ContextOptions{Tokens: 384, Sequences: 3}
	alone := stockModel(t, path, false)
	_, e := stock(t, alone, o)
	want := together(t, e, prompts, n)
	for _, share := range []float64{0.1, 0.25, 1} {
		m := openModel(t, Options{Path: path}, share)
		d, e := newDecoder(t, m, DecoderOptions{ContextOptions: o})
		got := together(t, e, prompts, n)
		for s := range prompts {
			if diff := got[s].difference(want[s]); diff != "" && d.Cuts == 0 {
				t.Errorf("share %g, sequence %d: %s", share, s, diff)
			}
			if !slices.Equal(got[s].tokens, want[s].tokens) {
				t.Errorf("share %g, sequence %d: got %v, want %v", share, s, got[s].tokens, want[s].tokens)
			}
		}
		st := wellKept(t, fmt.Sprint(share), m.Runtime)
		t.Logf("share %g: %d cuts, hits %.3f", share, d.Cuts, st.HitRate())
	}
	m := openModel(t, Options{Path: path, Runtime: runtime.Options{Keep: runtime.KeepLRU}}, 0.25)
	d, e := newDecoder(t, m, DecoderOptions{ContextOptions: o})
	for s, p := range prompts {
		if got := greedy(t, e, p.IDs, n); !slices.Equal(got.tokens, want[s].tokens) {
			t.Errorf("%s alone: got %v, want %v", p.Name, got.tokens, want[s].tokens)
		}
		if err := d.End(0); err != nil {
			t.Error(err)
		}
	}
}

// together goes on from several prompts at once.
func together(t testing.TB, e engine, prompts []libtest.Prompt, n int) []text {
	t.Helper()
	out := make([]text, len(prompts))
	var items []llama.Item
	for s, p := range prompts {
		items = append(items, prompt(int32(s), p.IDs)...)
	}
	for range n {
		if err := e(items, func(i int, logits []float32) error { return out[items[i].Sequence].add(i, logits) }); err != nil {
			t.Fatal(err)
		}
		items = nil
		for s, p := range prompts {
			made := out[s].tokens
			items = append(items, llama.Item{Token: made[len(made)-1], Position: int32(len(p.IDs) + len(made) - 1), Sequence: int32(s), Logits: true})
		}
	}
	return out
}
