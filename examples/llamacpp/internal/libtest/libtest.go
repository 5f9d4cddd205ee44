// Package libtest finds what this module's tests run: llama.cpp, the models, and what
// another llama.cpp made of them.
package libtest

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider/internal/synthckpt"
	"outrider/internal/testfiles"
)

// required is the variable that makes a missing library a failure, so that a machine
// that is to run these tests cannot skip them all and look green.
const required = "OUTRIDER_LLAMA_REQUIRED"

// Dir is the folder with llama.cpp's shared libraries: YZMA_LIB, or where fetch.sh puts
// them. The test is skipped where there is none.
func Dir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("YZMA_LIB")
	if dir == "" {
		dir = filepath.Join(testfiles.Root(t), "examples", "llamacpp", "lib")
	}
	_, err := os.Stat(filepath.Join(dir, "libllama.so"))
	switch {
	case err == nil:
		return dir
	case os.Getenv(required) == "1":
		t.Fatalf("no llama.cpp in %s: run fetch.sh, or name its folder by YZMA_LIB (%s=1)", dir, required)
	case !errors.Is(err, os.ErrNotExist):
		t.Fatal(err)
	}
	t.Skipf("no llama.cpp in %s: run fetch.sh, or name its folder by YZMA_LIB", dir)
	return ""
}

// Tiny is the shipped model.
func Tiny(t testing.TB) string {
	t.Helper()
	return filepath.Join(testfiles.Root(t), "testdata", "tinymoe", "tinymoe-q8_0.gguf")
}

// Text is enough text for some hundred tokens of the shipped model, of the kind that it
// was trained on.
func Text(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	for _, p := range ShippedReference(t) {
		b.WriteString(p.Text)
		b.WriteString("\n")
	}
	return b.String()
}

// Prompt is one of a reference.
type Prompt struct {
	Name     string             `json:"name"`
	Text     string             `json:"text"`
	IDs      []int32            `json:"ids"`
	Variants map[string]Variant `json:"variants"`
}

// Variant is what llama.cpp made of a prompt with one file and one setting.
type Variant struct {
	Top10  [][2]float64 `json:"top10_last"` // token, logit
	Greedy []int32      `json:"greedy"`
	Margin []float64    `json:"greedy_margin"` // of each over the second
	Router [][][]int32  `json:"router_topk"`   // [layer][token][rank]; nil where it was not kept
	Logits []float32    `json:"logits_last"`   // of the prompt's last token; nil likewise
}

// ShippedReference is that of the shipped model.
func ShippedReference(t testing.TB) []Prompt {
	t.Helper()
	return readPrompts(t, filepath.Join(testfiles.Root(t), "testdata", "tinymoe", "reference-q8_0.json"))
}

// Reference is that of all files of the collection beside the repository; the test is
// skipped where it is absent.
func Reference(t testing.TB) (prompts []Prompt, dir string) {
	t.Helper()
	dir = testfiles.Shared(t, "tinymoe")
	return readPrompts(t, filepath.Join(dir, "reference.json")), dir
}

func readPrompts(t testing.TB, path string) []Prompt {
	t.Helper()
	var all struct {
		Prompts []Prompt `json:"prompts"`
	}
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil || len(all.Prompts) == 0 {
		t.Fatalf("%s: %d prompts, %v", path, len(all.Prompts), err)
	}
	return all.Prompts
}

// Synth writes a synthetic checkpoint and returns its path.
func Synth(t testing.TB, o synthckpt.Options, shards int) string {
	t.Helper()
	o.Format = synthckpt.GGUF
	m, err := synthckpt.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.Write(t.Context(), synthckpt.Target{Out: filepath.Join(t.TempDir(), o.Family+".gguf"), Shards: shards})
	if err != nil {
		t.Fatal(err)
	}
	return r.Files[0]
}
