package stream

import (
	"strings"
	"testing"

	"outrider/examples/llamacpp/internal/libtest"
	"outrider/examples/llamacpp/llama"
	"outrider/internal/synthckpt"
	"outrider/runtime"
)

// refused are the forms that cannot be served, with words of the error: most of them lack
// keys or tensors that llama.cpp asks for and that have nothing to do with experts.
var refused = map[string]string{
	"deepseek-v4":        "key not found in model: deepseek4.swiglu_clamp_exp",
	"gemma-4":            "array key not found in model: gemma4.attention.sliding_window_pattern",
	"gpt-oss-ollama":     "unknown model architecture: 'gptoss'",
	"kimi-linear":        "key not found in model: kimi-linear.attention.key_length_mla",
	"llada-moe":          "this model keeps nothing of a sequence, and so does not write token by token",
	"mimo-v2":            "array key not found in model: mimo2.attention.sliding_window_pattern",
	"minimax-m2":         `llama.cpp wants tensor "blk.0.exp_probs_b.bias", which the model does not have`,
	"mixtral-per-expert": "layer 0 has a tensor for each expert (blk.0.ffn_gate.{expert}.weight), which llama.cpp of today does not run: convert the model again",
	"nemotron-h-latent":  "key not found in model: nemotron_h_moe.ssm.conv_kernel",
	"nemotron-h-moe":     "key not found in model: nemotron_h_moe.ssm.conv_kernel",
	"phi-3.5-moe":        "error loading model vocabulary",
	"qwen3-next":         "key not found in model: qwen3next.ssm.conv_kernel",
	"qwen3.5-moe":        "key not found in model: qwen35moe.rope.dimension_sections",
	"step-3.5":           "array key not found in model: step35.attention.sliding_window_pattern",
}

// crashing is a form in whose synthetic file llama.cpp itself reads a tensor that is not
// there (SIGSEGV when it makes a context), whoever loads it.
const crashing = "afmoe"

// addressed are forms of which llama.cpp takes single numbers (scales) by the numbers of
// experts, so that each expert keeps an address.
var addressed = map[string]bool{"qwen3-moe-nvfp4": true}

// buffered are forms whose experts begin at no multiple of what direct reads need.
var buffered = map[string]bool{"qwen3-moe-low-bits": true, "qwen3-moe-nvfp4": true}

// Every family that llama.cpp loads: 24 tokens of a prompt and 16 more, one at a time, give
// the logits of llama.cpp alone, bit for bit, in the same batches. The memory of experts
// that are dropped is overwritten, so that an expert that is used and not held would show.
func TestFamilies(t *testing.T) {
	list, err := synthckpt.Families()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if f.Format != synthckpt.GGUF || f.Name == crashing {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			path := family(t, f.Name)
			if word := refused[f.Name]; word != "" {
				m, err := Open(t.Context(), lib(t), Options{Path: path})
				if err == nil {
					err = m.Close()
				}
				if err == nil || !strings.Contains(err.Error(), word) || !strings.Contains(err.Error(), path) {
					t.Errorf("got %v, want %q of %s", err, word, path)
				}
				return
			}
			alone := stockModel(t, path, false)
			for _, share := range []float64{0.25, 1} {
				equalFamily(t, f.Name, path, share, alone)
			}
		})
	}
}

// More slots than a layer has experts: a number of one is none of the other, and what
// llama.cpp takes by it beside weights must not be taken by a slot's, not even on trial.
func TestMoreSlotsThanExperts(t *testing.T) {
	for _, name := range []string{"gpt-oss", "qwen3-moe-nvfp4", "grove-moe"} {
		o := synthckpt.Options{Family: name, Seed: 7, Layers: 8, Experts: 8, TopK: 2, Hidden: 128, FFN: 128}
		path := libtest.Synth(t, o, 1)
		m := equalFamily(t, name, path, 0.5, stockModel(t, path, false))
		if m.slots != nil {
			if n := m.slots.bytes / m.slots.stride; n <= 8 {
				t.Errorf("%s: %d slots, want more than 8", name, n)
			}
		}
	}
}

// family writes a small checkpoint, but with experts of several pages.
func family(t testing.TB, name string) string {
	t.Helper()
	o := synthckpt.Options{Family: name, Seed: 7, Layers: 4, Experts: 8, TopK: 2, Hidden: 128, FFN: 128}
	if name == "jamba" {
		o.Layers = 6 // with fewer it has no attention, for which llama.cpp gives up
	}
	return libtest.Synth(t, o, 1)
}

func equalFamily(t *testing.T, name, path string, share float64, alone *llama.Model) *Model {
	t.Helper()
	o := llama.ContextOptions{Tokens: 64}
	m := openModel(t, Options{Path: path}, share)
	d, _ := newDecoder(t, m, DecoderOptions{ContextOptions: o})
	items, forced := all(prompt(0, madeUp(m.Tokens, 24))), all(prompt(0, madeUp(m.Tokens, 40)))[24:]
	got, pieces := inPieces(t, d, items)
	for i := range forced {
		if err := d.Decode(t.Context(), forced[i:i+1], got.add); err != nil {
			t.Fatal(err)
		}
	}
	c, _ := stock(t, alone, o)
	want := fed(t, c, items, pieces)
	for i := range forced {
		if err := decodePart(c, forced[i:i+1], want.add); err != nil {
			t.Fatal(err)
		}
	}
	if diff := got.difference(want); diff != "" {
		t.Errorf("%.0f %%: not as llama.cpp alone: %s; %s", 100*share, diff, got.distance(want))
	}
	if n := distinct(want.tokens); n < 4 {
		t.Errorf("%d tokens are likeliest anywhere: this model shows nothing", n)
	}
	st := wellKept(t, name, m.Runtime)
	checkFamily(t, name, share, m, st)
	t.Logf("| %s | %s | %.0f %% | %s | %d of %d KiB read | %d batches for 24 tokens | hits %.2f |", name, m.About, 100*share, placing(m), read(st)>>10, m.ExpertBytes>>10, len(pieces), st.HitRate())
	return m
}

// checkFamily sees that there was something to prove: experts went and came back, and
// what was done is what is known of the family.
func checkFamily(t *testing.T, name string, share float64, m *Model, st runtime.Stats) {
	t.Helper()
	if share < 0.5 && (read(st) < 2*m.ExpertBytes || st.Memory.Peak > m.ExpertBytes/2) {
		t.Errorf("%d bytes read, peak %d of %d: want all experts to go and come again", read(st), st.Memory.Peak, m.ExpertBytes)
	}
	if share >= 1 && read(st) != m.ExpertBytes {
		t.Errorf("%d bytes read, want each expert once, %d", read(st), m.ExpertBytes)
	}
	for l := range m.Runtime.Shape().Layers {
		if m.Runtime.SlotBytes(l) < 2*4096 {
			t.Errorf("layer %d: experts of %d bytes, want several pages", l, m.Runtime.SlotBytes(l))
		}
	}
	if slots := share < 1 && !addressed[name]; (m.slots != nil) != slots {
		t.Errorf("%g: slots are shared: %v, want %v", share, m.slots != nil, slots)
	}
	if (m.Note != "") != buffered[name] {
		t.Errorf("got note %q, want one: %v", m.Note, buffered[name])
	}
}

func read(st runtime.Stats) int64 { return st.Reads.DemandBytes + st.Reads.SpeculativeBytes }

func placing(m *Model) string {
	if m.slots != nil {
		return "slots"
	}
	return "addresses"
}

// fed gives llama.cpp alone the same pieces.
func fed(t testing.TB, c *llama.Context, items []llama.Item, pieces []int) (out text) {
	t.Helper()
	for _, n := range pieces {
		if err := decodePart(c, items[:n], out.add); err != nil {
			t.Fatal(err)
		}
		items = items[n:]
	}
	return out
}

func distinct(tokens []int32) int {
	seen := map[int32]bool{}
	for _, v := range tokens {
		seen[v] = true
	}
	return len(seen)
}

// madeUp are tokens without meaning, not in circles.
func madeUp(vocabulary, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32((i*i*31 + i*7 + 3) % vocabulary)
	}
	return out
}
