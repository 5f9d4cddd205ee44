package llama

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"outrider/examples/llamacpp/ggml"
	"outrider/examples/llamacpp/internal/libtest"
)

func TestContextRefuses(t *testing.T) {
	m := openTiny(t)
	if _, err := m.NewContext(ContextOptions{Tokens: 64, FlashAttention: "perhaps"}); err == nil || !strings.Contains(err.Error(), "want auto, on or off") {
		t.Errorf("flash attention perhaps: got %v", err)
	}
	c := newContext(t, m, ContextOptions{Tokens: 256, Batch: 8, Threads: 1})
	tokens := libtest.ShippedReference(t)[0].IDs
	if err := c.Decode(nil); err == nil {
		t.Error("no tokens were decoded")
	}
	if err := c.Decode(items(tokens[:9], 0)); err == nil || !strings.Contains(err.Error(), "decode 9 tokens, want 1 to 8") {
		t.Errorf("more than a batch: got %v", err)
	}
	if err := c.Decode([]Item{{Token: 1 << 20, Logits: true}}); err == nil {
		t.Error("a token that there is not was decoded")
	}
	if err := c.Decode([]Item{{Token: 1, Sequence: 5, Logits: true}}); err == nil {
		t.Error("a sequence that there is not was decoded")
	}
	if err := c.Decode(items(tokens[:4], 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Logits(0); err == nil {
		t.Error("a token that wanted no logits has some")
	}
	if got, err := c.Logits(3); err != nil || len(got) != m.Tokens {
		t.Errorf("got %d logits, %v, want %d", len(got), err, m.Tokens)
	}
}

// A full context says so and stays as it is; shifted, it goes on.
func TestContextFull(t *testing.T) {
	m := openTiny(t)
	c := newContext(t, m, ContextOptions{Tokens: 256, Batch: 256, Threads: 1})
	tokens := make([]int32, c.Tokens)
	for i := range tokens {
		tokens[i] = int32(i*7+3) % 2000
	}
	if err := c.Decode(items(tokens, 0)); err != nil {
		t.Fatal(err)
	}
	more := items([]int32{5}, int32(c.Tokens))
	for range 2 {
		if err := c.Decode(more); !errors.Is(err, ErrContextFull) {
			t.Fatalf("got %v, want ErrContextFull", err)
		}
	}
	if err := c.Shift(0, 4, 100); err != nil {
		t.Fatal(err)
	}
	if err := c.Decode(items([]int32{5}, int32(c.Tokens)-100)); err != nil {
		t.Errorf("after a shift: %v", err)
	}
}

// What was cut had never been decoded.
func TestCut(t *testing.T) {
	m := openTiny(t)
	tokens := libtest.ShippedReference(t)[1].IDs
	o := ContextOptions{Tokens: 64, Threads: 1, FlashAttention: "off"}
	last := func(c *Context, tokens []int32, from int32) []float32 {
		if err := c.Decode(items(tokens, from)); err != nil {
			t.Fatal(err)
		}
		got, err := c.Logits(len(tokens) - 1)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Clone(got)
	}
	plain, cut := newContext(t, m, o), newContext(t, m, o)
	last(plain, tokens[:10], 0)
	last(cut, tokens[:10], 0)
	last(cut, []int32{9, 9, 9}, 10)
	if err := cut.Cut(0, 10); err != nil {
		t.Fatal(err)
	}
	if want, got := last(plain, tokens[10:], 10), last(cut, tokens[10:], 10); !slices.Equal(got, want) {
		t.Error("tokens that were cut are remembered")
	}
}

// A watch is asked of all nodes or told of gate weights, and may stop the graph.
func TestWatch(t *testing.T) {
	m := openTiny(t)
	asked, told, stop := 0, []string{}, ""
	w := NewWatch(func(x *ggml.Tensor, ask bool) bool {
		if ask {
			asked++
			return false
		}
		told = append(told, x.Name())
		return x.Name() != stop
	})
	defer w.Close()
	c := newContext(t, m, ContextOptions{Tokens: 64, Threads: 1, Watch: w})
	one := func(position int32) error { return c.Decode([]Item{{Token: 71, Position: position, Logits: true}}) }
	if err := one(0); err != nil {
		t.Fatal(err)
	}
	if want := "ffn_moe_weights-0 ffn_moe_weights-1 ffn_moe_weights-2 ffn_moe_weights-3 ffn_moe_weights-4 ffn_moe_weights-5 ffn_moe_weights-6 ffn_moe_weights-7"; strings.Join(told, " ") != want || asked > len(told) {
		t.Errorf("asked %d times, told of %v, want %s", asked, told, want)
	}
	told, stop = told[:0], "ffn_moe_weights-2"
	if err := one(1); len(told) != 3 {
		t.Errorf("stopped at the third layer: told of %v, %v", told, err)
	}
	told, stop = told[:0], ""
	w.Pass(ggml.PassNothing)
	if err := errors.Join(c.Cut(0, 1), one(1)); err != nil || len(told) > 0 {
		t.Errorf("told of %v, %v, want nothing", told, err)
	}
	w.Pass(ggml.PassAll)
	if asked = 0; one(2) != nil || asked < 200 || len(told) > 0 {
		t.Errorf("asked of %d nodes, told of %v, want all and none", asked, told)
	}
}
