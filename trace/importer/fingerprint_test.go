package importer

import (
	"strings"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

// As the repository publishes it: an object, printed over many lines.
const printObject = `{
  "row_index": 7,
  "dataset": "d",
  "category": "c",
  "original_prompt": "a, [b]",
  "full_text": ["a", ",", "[b]", "c", "d"],
  "generated_only": ["c", "d"],
  "router_data": [
    {
      "token_2": {
        "layer_0": {"selected_experts": [3, 1], "selected_probs": [0.75, 0.25]},
        "layer_1": {"selected_experts": [0, 2], "selected_probs": [0.5, 0.5]}
      }
    },
    {
      "token_3": {
        "layer_0": {"selected_experts": [4, 1], "selected_probs": [0.625, 0.375]},
        "layer_1": {"selected_experts": [7, 2], "selected_probs": [0.5, 0.5]}
      }
    }
  ]
}`

const printLine = `{"source_path":"x","n_prompt_tokens":9,"router_data":[{"token_9":{"layer_0":{"selected_experts":[5,6],"selected_probs":[0.5,0.5]},"layer_1":{"selected_experts":[1,0],"selected_probs":[0.5,0.5]}}}]}`

func printHeader(source string) trace.Header {
	return trace.Header{
		Shape: layout.Shape{Layers: 2, Experts: 8, TopK: 2}, Source: source,
		Weights: true, IDs: trace.IDsLogical, Ranked: trace.Yes, Sequences: trace.Yes,
	}
}

func TestFingerprint(t *testing.T) {
	first := []string{"0/2 prefill 3 1|0 2 @ 0.75 0.25|0.5 0.5", "0/3 decode 4 1|7 2 @ 0.625 0.375|0.5 0.5"}
	for name, text := range map[string]string{
		"object":  printObject,
		"list":    "\xef\xbb\xbf [" + printObject + "\n]",
		"objects": printObject + "\n" + printLine + "\n",
		"lines":   strings.ReplaceAll(printObject, "\n", " ") + "\n" + printLine + "\n",
	} {
		tokens := first
		if name == "objects" || name == "lines" {
			tokens = append(first[:2:2], "1/9 decode 5 6|1 0 @ 0.5 0.5|0.5 0.5")
		}
		t.Run(name, func(t *testing.T) {
			sample{
				form: "gpt-oss-fingerprint", files: []named{{"True_True_examples.json", text}}, opts: Options{Experts: 8},
				header: printHeader("imported from gpt-oss-fingerprint: True_True_examples.json"), tokens: tokens,
			}.run(t)
		})
	}
	t.Run("files", func(t *testing.T) {
		h := printHeader("imported from gpt-oss-fingerprint: a.json and 1 more")
		h.Model, h.Ranked = "m", trace.No
		sample{
			form:   "gpt-oss-fingerprint",
			files:  []named{{"a.json", strings.Replace(printLine, `"n_prompt_tokens":9,`, "", 1)}, {"b.json", strings.Replace(printLine, "[0.5,0.5]", "[0.25,0.75]", 1)}},
			opts:   Options{Experts: 8, Model: "m", Prompt: 10},
			header: h,
			tokens: []string{"0/9 prefill 5 6|1 0 @ 0.5 0.5|0.5 0.5", "1/9 decode 5 6|1 0 @ 0.25 0.75|0.5 0.5"},
		}.run(t)
	})
}

func TestFingerprintShared(t *testing.T) {
	if testing.Short() {
		t.Skip("compares 20,881 tokens")
	}
	imp := sharedStream(t, Options{Experts: 32}, "raw/gpt-oss-20b-fingerprinting/router_data.jsonl.gz")
	if h := imp.Header(); h.Ranked != trace.Yes || !h.Weights {
		t.Errorf("header: got %+v, want ranked rows with weights", h)
	}
	if n := equalNeutral(t, imp, "gpt-oss-20b.jsonl.gz", nil); n != 20881 {
		t.Errorf("tokens: got %d, want 20881", n)
	}
}

func TestFingerprintDamaged(t *testing.T) {
	one := func(text string) []named { return []named{{"p.json", text}} }
	data := func(token string) []named { return one(`{"router_data":[` + token + `]}`) }
	row := `{"layer_0":{"selected_experts":[5,6],"selected_probs":[0.5,0.5]}}`
	told := []string{"0/1 unknown 5 6 @ 0.5 0.5"}
	refuses(t, "gpt-oss-fingerprint", Options{Experts: 8}, []brokenCase{
		{name: "empty", files: one(""), want: "the file ends inside a sequence"},
		{name: "no JSON", files: one("abc"), want: "invalid character 'a'"},
		{name: "number", files: one("5"), want: `want "{" of a sequence, got "5"`},
		{name: "no tokens", files: one(`{"router_data":[]}`), want: "holds no row"},
		{name: "two keys", files: data(`{"token_1":{},"token_2":{}}`), want: "element 0 of router_data has 2 keys"},
		{name: "token name", files: data(`{"tok1":` + row + `}`), want: `"tok1" is no "token_<position>"`},
		{name: "negative position", files: data(`{"token_-1":` + row + `}`), want: `"token_-1" is no`},
		{name: "layer name", files: data(`{"token_1":{"l0":{}}}`), want: `"l0" is no "layer_<number>"`},
		{name: "probs", files: data(`{"token_1":{"layer_0":{"selected_experts":[5,6],"selected_probs":[0.5]}}}`), want: "has 1 selected_probs for 2 experts"},
		{name: "kind", files: data(`{"token_1":{"layer_0":{"selected_experts":["a"]}}}`), want: "cannot unmarshal string"},
		{name: "position again", files: data(`{"token_1":` + row + `},{"token_1":` + row + `}`), tokens: told, want: "token_1 comes after token_1"},
		{name: "layer missing", files: data(`{"token_1":` + row + `},{"token_2":{"layer_1":{"selected_experts":[5,6],"selected_probs":[0.5,0.5]}}}`), want: "ragged"},
		{name: "id outside", files: data(`{"token_1":` + row + `},{"token_2":` + strings.Replace(row, "5,", "8,", 1) + `}`), tokens: told, want: "token_2: layer 0: expert id 8 is outside 0 to 7"},
		{name: "short row", files: data(`{"token_1":` + row + `},{"token_2":` + strings.NewReplacer("5,6", "5", "0.5,0.5", "0.5").Replace(row) + `}`), tokens: told, want: "the row has 1 expert ids"},
		{name: "cut", files: one(`{"router_data":[{"token_1":` + row + `},{"token_2":` + row + `},{"tok`), tokens: []string{told[0], "0/2 unknown 5 6 @ 0.5 0.5"}, want: "the file ends inside a sequence"},
	})
}

func FuzzFingerprint(f *testing.F) {
	fuzzForm(f, "gpt-oss-fingerprint", Options{Experts: 8}, printObject, "["+printObject+"]", printLine)
}
