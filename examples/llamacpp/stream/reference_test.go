package stream

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"outrider/examples/llamacpp/internal/libtest"
	"outrider/examples/llamacpp/llama"
	"outrider/runtime"
	"outrider/trace"
)

const (
	// rounded is what a reference with four decimals leaves of equal logits.
	rounded = 6e-5
	// narrow is the lead of a token over the next below which another machine's
	// kernels may choose the next: those of K-quants sum in another order.
	narrow = 0.01
)

// What another build of llama.cpp, on another machine, made of the shipped model: the
// same tokens, the same logits, and the same experts for every token in every layer.
func TestReference(t *testing.T) {
	compareAll(t, libtest.Tiny(t), "q8_0", libtest.ShippedReference(t))
}

// The same of all files of the model: F16, K-quants in three shards, MXFP4; as the
// reference was made, and with llama.cpp's defaults.
func TestReferenceOfAllFiles(t *testing.T) {
	libtest.Dir(t)
	prompts, dir := libtest.Reference(t)
	for _, f := range []struct{ variant, file string }{
		{"f16", "tinymoe-f16.gguf"}, {"f16-default", "tinymoe-f16.gguf"},
		{"q8_0", "tinymoe-q8_0.gguf"}, {"q8_0-default", "tinymoe-q8_0.gguf"},
		{"q4_k_m", "tinymoe-q4_k_m-00002-of-00003.gguf"}, {"mxfp4_moe", "tinymoe-mxfp4_moe.gguf"},
	} {
		compareAll(t, filepath.Join(dir, f.file), f.variant, prompts)
	}
}

// compareAll runs the prompts in both modes at three budgets: all of them at a quarter,
// one each otherwise, and few tokens where every token reads all its experts.
func compareAll(t *testing.T, path, variant string, prompts []libtest.Prompt) {
	for i, arm := range []struct {
		name  string
		share float64
		keep  runtime.Keep
	}{
		{"outrider, a quarter", 0.25, runtime.KeepForecast},
		{"outrider, floor", 0, runtime.KeepForecast}, {"outrider, all", 1, runtime.KeepForecast},
		{"demand, floor", 0, runtime.KeepLRU}, {"demand, a quarter", 0.25, runtime.KeepLRU}, {"demand, all", 1, runtime.KeepLRU},
	} {
		t.Run(variant+", "+arm.name, func(t *testing.T) {
			m := openModel(t, Options{Path: path, Runtime: runtime.Options{Keep: arm.keep}}, arm.share)
			some, steps := prompts, 64
			if i > 0 {
				some = prompts[i%len(prompts):][:1]
			}
			if arm.share == 0 {
				steps = 12
			}
			for _, p := range some {
				compare(t, m, p, variant, steps)
			}
			wellKept(t, arm.name, m.Runtime)
		})
	}
}

// compare goes on from a prompt, and then looks at the experts of each of its tokens.
func compare(t *testing.T, m *Model, p libtest.Prompt, variant string, steps int) {
	t.Helper()
	want := p.Variants[variant]
	o := llama.ContextOptions{Tokens: 128}
	if !strings.HasSuffix(variant, "-default") {
		o.FlashAttention, o.Float32Cache = "off", true
	}
	d, e := newDecoder(t, m, DecoderOptions{ContextOptions: o})
	got := greedy(t, e, p.IDs, steps)
	at := 0
	for at < steps && got.tokens[at] == want.Greedy[at] {
		at++
	}
	if at < steps {
		t.Logf("%s: token %d is %d, not %d, whose lead is %g", p.Name, at, got.tokens[at], want.Greedy[at], want.Margin[at])
		if want.Margin[at] > narrow {
			t.Errorf("%s: got %v, want %v", p.Name, got.tokens, want.Greedy[:steps])
		}
	}
	if want.Logits != nil && d.Cuts == 0 { // kernels for more tokens at once round otherwise
		far, at := apart(got.logits[0], want.Logits)
		if far > rounded {
			t.Errorf("%s: logit %d is %g, want %g", p.Name, at, got.logits[0][at], want.Logits[at])
		}
	}
	if want.Router != nil {
		compareRouting(t, m, p, want.Router, o)
	}
}

// compareRouting records the prompt, logits of all its tokens wanted: the last layer
// computes nothing for others.
func compareRouting(t *testing.T, m *Model, p libtest.Prompt, want [][][]int32, o llama.ContextOptions) {
	t.Helper()
	var got *trace.Trace
	d, e := newDecoder(t, m, DecoderOptions{ContextOptions: o, Record: func(h trace.Header) (_ trace.Sink, err error) {
		got, err = trace.NewTrace(h)
		return inMemory{got}, err
	}})
	if err := e(all(prompt(0, p.IDs)), func(int, []float32) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := d.End(0); err != nil {
		t.Fatal(err)
	}
	if got.Len() != len(p.IDs) || !slices.Equal(got.Tokens, p.IDs) {
		t.Fatalf("%s: recorded tokens %v, want %v", p.Name, got.Tokens, p.IDs)
	}
	for i := range p.IDs {
		for layer, rows := range want {
			experts, weights := got.Row(i, layer)
			if !slices.Equal(experts, rows[i]) {
				t.Errorf("%s: token %d, layer %d: got experts %v, want %v", p.Name, i, layer, experts, rows[i])
			}
			if sum := weights[0] + weights[1] + weights[2] + weights[3]; sum < 0.9999 || sum > 1.0001 || !slices.IsSortedFunc(weights, falling) {
				t.Errorf("%s: token %d, layer %d: weights %v, want a falling share of 1", p.Name, i, layer, weights)
			}
		}
	}
}

func falling(a, b float32) int {
	if a > b {
		return -1
	}
	return 1
}

// inMemory is a trace that is recorded into.
type inMemory struct{ *trace.Trace }

func (inMemory) Flush() error { return nil }
func (inMemory) Close() error { return nil }

// apart is how far two rows of logits are from each other at most, and where.
func apart(a, b []float32) (most float32, at int) {
	if len(a) != len(b) {
		panic(fmt.Sprint("rows of ", len(a), " and ", len(b)))
	}
	for i, v := range a {
		if d := max(v-b[i], b[i]-v); d > most {
			most, at = d, i
		}
	}
	return most, at
}
