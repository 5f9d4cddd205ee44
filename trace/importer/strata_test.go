package importer

import (
	"fmt"
	"strings"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

// strataText is a trace of two layers, its keys in order as the tool writes them.
func strataText(source string, tokens int, selections string) string {
	return fmt.Sprintf(`{
  "expertsPerLayer": 8,
  "layers": 2,
  "scenario": "domain-shift",
  "seed": 1,
  "selections": [%s],
  "source": %s,
  "tokens": %d,
  "topK": 2,
  "version": 2
}`, selections, source, tokens)
}

const (
	strataCaptured = `{"kind": "captured", "model": {"id": "m", "revision": "0"}}`
	strataThree    = `[[3, 1], [0, 2]], [[4, 1], [7, 2]], [[5, 1], [6, 2]]`
)

const strataMeta = `{"prompt_spans": [{"id": "a", "token_start": 0, "token_end_exclusive": 2}, {"id": "b", "token_start": 2, "token_end_exclusive": 3}],
 "scope": "encoder sparse feed-forward layers", "sparse_encoder_block_indices": [1, 3]}`

func strataHeader() trace.Header {
	return trace.Header{
		Model: "m", Shape: layout.Shape{Layers: 2, Experts: 8, TopK: 2}, Source: "imported from stratamoe: router-trace.v2.json",
		IDs: trace.IDsLogical, Ranked: trace.Yes, Sequences: trace.No,
	}
}

func TestStrata(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		sample{
			form: "stratamoe", files: []named{{"router-trace.v2.json", strataText(strataCaptured, 3, strataThree)}}, header: strataHeader(),
			tokens: []string{"0/0 unknown 3 1|0 2", "0/1 unknown 4 1|7 2", "0/2 unknown 5 1|6 2"},
		}.run(t)
	})
	t.Run("with spans", func(t *testing.T) {
		h := strataHeader()
		h.Sequences, h.Source = trace.Yes, "imported from stratamoe: prompt-spans.json and 1 more"
		h.Shape.LayerIDs = []int{1, 3}
		sample{
			form:  "stratamoe",
			files: []named{{"prompt-spans.json", `[["a",0,2],["b",2,3]]`}, {"router-trace.v2.json", strataText(strataCaptured, 3, strataThree)}},
			opts:  Options{LayerIDs: []int{1, 3}, Prompt: 1}, header: h,
			tokens: []string{"0/0 prefill 3 1|0 2", "0/1 decode 4 1|7 2", "1/0 prefill 5 1|6 2"},
		}.run(t)
	})
	t.Run("as the tool leaves it", func(t *testing.T) {
		h := strataHeader()
		h.Sequences, h.Source, h.Phase, h.Shape.LayerIDs = trace.Yes, "imported from stratamoe: capture-metadata.json and 2 more", trace.Prefill, []int{1, 3}
		h.IDs, h.Model = trace.IDsUnknown, ""
		sample{
			form:   "stratamoe",
			files:  []named{{"capture-metadata.json", strataMeta}, {"comparison.json", `{"a": 1}`}, {"router-trace.v2.json", strataText(`{"kind": "synthetic"}`, 3, strataThree)}},
			header: h,
			tokens: []string{"0/0 prefill 3 1|0 2", "0/1 prefill 4 1|7 2", "1/0 prefill 5 1|6 2"},
			notes:  []string{"comparison.json was left out", "it is synthetic"},
		}.run(t)
	})
}

// The form does not tell that all tokens are an encoder's, nor the blocks'
// numbers; the neutral file's maker knew.
func TestStrataShared(t *testing.T) {
	imp := sharedStream(t, Options{LayerIDs: []int{1, 3, 5, 7, 9, 11}}, "raw/switch-base-8-stratamoe")
	if h := imp.Header(); h.Model != "google/switch-base-8" || h.Sequences != trace.Yes || h.Phase != trace.PhaseUnknown {
		t.Errorf("header: got %+v", h)
	}
	n := equalNeutral(t, imp, "switch-base-8-encoder.jsonl.gz", func(a *trace.Activation) { a.Phase = trace.Prefill })
	if n != 215 {
		t.Errorf("tokens: got %d, want 215", n)
	}
}

func TestStrataDamaged(t *testing.T) {
	one := func(text string) []named { return []named{{"router-trace.v2.json", text}} }
	beside := func(name, text string) []named {
		return []named{{name, text}, {"router-trace.v2.json", strataText(strataCaptured, 3, strataThree)}}
	}
	good := strataText(strataCaptured, 3, strataThree)
	first := []string{"0/0 unknown 3 1|0 2"}
	refuses(t, "stratamoe", Options{}, []brokenCase{
		{name: "no trace", files: one(`{"a":1}`), want: "it is no RouterTrace"},
		{name: "version", files: one(strings.Replace(good, `"version": 2`, `"version": 1`, 1)), want: "its version is 1"},
		{name: "count", files: one(strataText(strataCaptured, 4, strataThree)), want: "it has 4 tokens, but there are 3"},
		{name: "cut", files: one(good[:len(good)-80]), want: "the file ends inside the trace"},
		{name: "no layers", files: one(strings.Replace(good, `"layers": 2`, `"layers": 0`, 1)), want: "give --layers", is: ErrNeedShape},
		{name: "negative layers", files: one(strings.Replace(good, `"layers": 2`, `"layers": -2`, 1)), want: "shape has -2 layers"},
		{name: "kind", files: one(strings.Replace(good, `"layers": 2`, `"layers": "2"`, 1)), want: "cannot unmarshal string"},
		{name: "layer missing", files: one(strataText(strataCaptured, 2, `[[3,1],[0,2]], [[4,1]]`)), tokens: first, want: "token 1 has 1 layers, want 2"},
		{name: "ragged", files: one(strataText(strataCaptured, 2, `[[3,1],[0,2]], [[4,1],[7]]`)), tokens: first, want: "ragged: row 1 has 1 ids"},
		{name: "narrow", files: one(strataText(strataCaptured, 2, `[[3,1],[0,2]], [[4],[7]]`)), tokens: first, want: "token 1: layer 0: the row has 1 expert ids"},
		{name: "outside", files: one(strataText(strataCaptured, 2, `[[3,1],[0,2]], [[4,8],[7,1]]`)), tokens: first, want: "token 1: layer 0: expert id 8 is outside"},
		{name: "no id", files: one(strataText(strataCaptured, 2, `[[3,1],[0,2]], [[4,"a"],[7,1]]`)), tokens: first, want: `row 0: "\"a\"" is no expert id`},
		{name: "deep", files: one(strataText(strataCaptured, 2, `[[3,1],[0,2]], [[4,[1]],[7,1]]`)), tokens: first, want: "row 0 holds an array"},
		{name: "flat", files: one(strataText(strataCaptured, 2, `[[3,1],[0,2]], [4, 1]`)), tokens: first, want: "want an array of rows"},
		{name: "two traces", files: []named{{"a.json", good}, {"b.json", good}}, want: "it is a second trace beside a.json"},
		{name: "spans no list", files: beside("prompt-spans.json", `{}`), want: "it is no list of spans"},
		{name: "spans kind", files: beside("prompt-spans.json", `[["a","0",2]]`), want: "span 0 is no [id, first, end]"},
		{name: "spans gap", files: beside("prompt-spans.json", `[["a",0,1],["b",2,3]]`), want: "span 1 is of tokens 2 to 3, want it to begin at 1"},
		{name: "spans short", files: beside("prompt-spans.json", `[["a",0,2]]`), want: "it has 3 tokens, but the prompts' spans beside it end at 2"},
		{name: "metadata", files: beside("capture-metadata.json", `[]`), want: "it is no capture metadata"},
		{name: "blocks", files: beside("capture-metadata.json", `{"sparse_encoder_block_indices": [1]}`), want: "shape names 1 layers, but has 2"},
	})
}

func FuzzStrata(f *testing.F) {
	fuzzForm(f, "stratamoe", Options{}, strataText(strataCaptured, 3, strataThree))
}
