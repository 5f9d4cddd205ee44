package refmodel

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"outrider/internal/testfiles"
	"outrider/router"
)

// referencePrompt is what is compared of a prompt of tinymoe's reference.json.
type referencePrompt struct {
	Name     string                      `json:"name"`
	Text     string                      `json:"text"`
	IDs      []int32                     `json:"ids"`
	Variants map[string]referenceVariant `json:"variants"`
}

// referenceVariant is llama.cpp's output for one file, and (Torch) PyTorch's
// with the same weights dequantised and float32 activations, which is what
// this package computes too.
type referenceVariant struct {
	Greedy []int32     `json:"greedy"`
	Margin []float64   `json:"greedy_margin"` // between the best and the second logit of each step
	Logits []float32   `json:"logits_last"`   // of the last prompt position
	TopK   [][][]int32 `json:"router_topk"`   // [layer][token][rank]
	Torch  *struct {
		Greedy []int32   `json:"greedy"`
		Logits []float32 `json:"logits_last"`
	} `json:"torch_dequantised"`
}

// sharedData is the folder of all forms of the reference model, beside the repository.
func sharedData(t testing.TB) string {
	t.Helper()
	return testfiles.Shared(t, "tinymoe")
}

// q8Model and q8Reference are the form that the repository carries.
func q8Model(t testing.TB) string {
	return filepath.Join(testfiles.Root(t), "testdata", "tinymoe", "tinymoe-q8_0.gguf")
}

func q8Reference(t testing.TB) []referencePrompt {
	return readReference(t, filepath.Join(testfiles.Root(t), "testdata", "tinymoe", "reference-q8_0.json"))
}

func readReference(t testing.TB, path string) []referencePrompt {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Prompts []referencePrompt `json:"prompts"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Prompts) == 0 {
		t.Fatalf("%s: no prompts", path)
	}
	return r.Prompts
}

func TestReferencePrompts(t *testing.T) {
	model, err := Load(nil, q8Model(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range q8Reference(t) {
		if got := model.Tokenizer.Encode(p.Text); !slices.Equal(got, p.IDs) {
			t.Errorf("%s: got %v, want %v", p.Name, got, p.IDs)
		}
		if got := model.Tokenizer.Decode(p.IDs); got != p.Text {
			t.Errorf("%s: decoded: got %q, want %q", p.Name, got, p.Text)
		}
	}
}

// torchBound is what the reference's rounding to four decimals and float32 leave.
const torchBound = 2e-4

// allowed says how far a variant may be from the reference.
type allowed struct {
	variant, file string
	logit         float64 // from llama.cpp's logits, where it wrote all
	torch         float64 // from PyTorch's with the same dequantised weights
	routes        int     // choices of the prompts that must be llama.cpp's sets
}

// TestReferenceOutputs compares with llama.cpp. It rounds activations, to F16
// for F16 weights and to 8 bits for quantised ones; this package does not. So
// the bounds are those that the reference's own comparison with PyTorch found,
// and greedy tokens are compared while llama.cpp's margin exceeds twice the bound.
func TestReferenceOutputs(t *testing.T) {
	numericOnly(t)
	shared := sharedData(t)
	prompts := readReference(t, filepath.Join(shared, "reference.json"))
	for _, a := range []allowed{
		{"f16", "tinymoe-f16.gguf", 0.02, 0, 720},
		{"q4_k_m", "tinymoe-q4_k_m-00001-of-00003.gguf", 0, torchBound, 0},
		{"mxfp4_moe", "tinymoe-mxfp4_moe.gguf", 0, torchBound, 0},
		{"q4_0-1layer", "tinymoe-1layer-q4_0.gguf", 0, torchBound, 0},
	} {
		t.Run(a.variant, func(t *testing.T) {
			model, experts := loadMemory(t, filepath.Join(shared, a.file))
			compareReference(t, a, prompts, func(o Options) *Generator { return experts.generator(t, model, o) })
		})
	}
}

// TestReferenceQ8 is TestReferenceOutputs for the form in the repository.
func TestReferenceQ8(t *testing.T) {
	numericOnly(t)
	model, experts := loadMemory(t, q8Model(t))
	a := allowed{variant: "q8_0", logit: 0.6, torch: torchBound, routes: 700}
	compareReference(t, a, q8Reference(t), func(o Options) *Generator { return experts.generator(t, model, o) })
}

func compareReference(t *testing.T, a allowed, prompts []referencePrompt, generator func(Options) *Generator) {
	t.Helper()
	var routes, sameRoutes int
	var llama, torch float64
	for _, p := range prompts {
		want := p.Variants[a.variant]
		var route func(layer int, choices []router.Choice)
		g := generator(Options{OnRoute: func(layer int, choices []router.Choice) { route(layer, choices) }})
		route = func(layer int, choices []router.Choice) {
			if want.TopK == nil || len(choices) != len(p.IDs) {
				return
			}
			for i, c := range choices {
				routes++
				if equalSets(c.Experts, want.TopK[layer][i]) {
					sameRoutes++
				}
			}
		}
		got, err := g.Transcribe(context.Background(), p.IDs, len(want.Greedy))
		if err != nil {
			t.Fatal(err)
		}
		if want.Logits != nil {
			llama = max(llama, difference(got.Logits[0], want.Logits))
		}
		if want.Torch != nil {
			torch = max(torch, difference(got.Logits[0], want.Torch.Logits))
			if n := equalPrefix(got.Tokens, want.Torch.Greedy); n < len(want.Torch.Greedy) {
				t.Errorf("%s: greedy: %d of %d tokens equal PyTorch's", p.Name, n, len(want.Torch.Greedy))
			}
		}
		compareGreedy(t, a, p.Name, got.Tokens, want)
	}
	t.Logf("largest logit difference to llama.cpp %.3g, to PyTorch %.3g; router sets equal to llama.cpp's %d of %d", llama, torch, sameRoutes, routes)
	if llama > a.logit && a.logit > 0 {
		t.Errorf("logits: got %.3g from llama.cpp's, want at most %g", llama, a.logit)
	}
	if torch > a.torch {
		t.Errorf("logits: got %.3g from PyTorch's, want at most %g", torch, a.torch)
	}
	if sameRoutes < a.routes {
		t.Errorf("router choices: got %d of %d equal to llama.cpp's, want %d", sameRoutes, routes, a.routes)
	}
}

// numericOnly skips a test that is a matter of figures under the race detector.
func numericOnly(t *testing.T) {
	t.Helper()
	if underRace {
		t.Skip("nothing runs at once here, and it takes long under the race detector")
	}
}

// compareGreedy demands equality as long as llama.cpp's own margin tells the
// two best tokens apart in spite of the allowed difference; beyond, it reports.
func compareGreedy(t *testing.T, a allowed, name string, got []int32, want referenceVariant) {
	t.Helper()
	same := equalPrefix(got, want.Greedy)
	certain := 0
	for certain < len(want.Margin) && a.logit > 0 && want.Margin[certain] > 2*a.logit {
		certain++
	}
	t.Logf("%s: greedy: %d of %d tokens equal llama.cpp's, of which its margin decides %d", name, same, len(want.Greedy), certain)
	if same < certain {
		t.Errorf("%s: greedy: got %d equal to llama.cpp's, want at least %d", name, same, certain)
	}
	if a.variant == "f16" && same < len(want.Greedy) {
		t.Errorf("%s: greedy: got %d equal to llama.cpp's, want all %d", name, same, len(want.Greedy))
	}
}

func equalSets(a, b []int32) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func equalPrefix(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// difference is the largest absolute difference.
func difference(a, b []float32) float64 {
	most := math.Inf(1)
	if len(a) == len(b) {
		most = 0
	}
	for i := range min(len(a), len(b)) {
		most = max(most, math.Abs(float64(a[i])-float64(b[i])))
	}
	return most
}
