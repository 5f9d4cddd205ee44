package importer

import (
	"fmt"
	"strings"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

// specText is problems of two layers with so many rows each.
func specText(problems ...[2]int) string {
	s := &strings.Builder{}
	for p, rows := range problems {
		for l, n := range rows {
			for i := range n {
				fmt.Fprintf(s, `{"dataset": "gsm8k", "problem_id": %d, "layer": %d, "experts": [%d, %d], "gating_probs": [0.75, 0.25], "token_idx": %d}`+"\n", p, l, l, 2+i%4, i)
			}
		}
	}
	return s.String()
}

func specHeader(source string) trace.Header {
	return trace.Header{
		Shape: layout.Shape{Layers: 2, Experts: 8, TopK: 2}, Source: source, Phase: trace.Decode,
		Weights: true, Ranked: trace.Yes, Sequences: trace.Yes,
	}
}

func TestSpeculative(t *testing.T) {
	const weights = " @ 0.75 0.25|0.75 0.25"
	sample{
		form:   "speculative-moe",
		files:  []named{{"gsm8k_2_routing.jsonl", specText([2]int{2, 2}, [2]int{2, 1})}, {"b.jsonl", specText([2]int{1, 1})}},
		opts:   Options{Experts: 8},
		header: specHeader("imported from speculative-moe: gsm8k_2_routing.jsonl and 1 more"),
		tokens: []string{"0/0 decode 0 2|1 2" + weights, "0/1 decode 0 3|1 3" + weights, "1/0 decode 0 2|1 2" + weights, "2/0 decode 0 2|1 2" + weights},
		notes:  []string{"Layers of 1 of 3 problems lack up to 1 tokens"},
	}.run(t)
}

// The neutral file has HumanEval's problems first, and each cut to its shortest
// layer, as the importer does.
func TestSpeculativeShared(t *testing.T) {
	const folder = "raw/mixtral-8x7b-speculative-moe/"
	imp := sharedStream(t, Options{Experts: 8}, folder+"humaneval_2_routing.jsonl.gz", folder+"gsm8k_2_routing.jsonl.gz")
	if n := equalNeutral(t, imp, "mixtral-8x7b-instruct.jsonl.gz", nil); n != 577 {
		t.Errorf("tokens: got %d, want 577", n)
	}
	if notes := imp.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "Layers of 4 of 4 problems lack up to 3 tokens") {
		t.Errorf("notes: got %q, want how many rows were cut off", notes)
	}
}

func TestSpeculativeDamaged(t *testing.T) {
	one := func(text string) []named { return []named{{"p.jsonl", text}} }
	row := func(rest string) string {
		return specText([2]int{1, 1}, [2]int{1, 1}) + `{"dataset":"gsm8k","problem_id":2,` + rest + "}\n"
	}
	const weights = " @ 0.75 0.25|0.75 0.25"
	told := []string{"0/0 decode 0 2|1 2" + weights, "1/0 decode 0 2|1 2" + weights}
	refuses(t, "speculative-moe", Options{Experts: 8}, []brokenCase{
		{name: "empty", files: one(""), want: "holds no row"},
		{name: "no JSON", files: one("{\"dataset\"\n"), want: "line 1: the line is no row"},
		{name: "no layer", files: one(`{"problem_id":0,"experts":[1],"gating_probs":[1],"token_idx":0}`), want: "line 1: the row needs a problem_id, a layer"},
		{name: "no problem", files: one(`{"layer":0,"experts":[1],"gating_probs":[1],"token_idx":0}`), want: "line 1: the row needs a problem_id"},
		{name: "gates", files: one(`{"problem_id":0,"layer":0,"experts":[1,2],"gating_probs":[1],"token_idx":0}`), want: "line 1: the row has 1 gating_probs for 2 experts"},
		{name: "id kind", files: one(`{"problem_id":0,"layer":0,"experts":[1.5],"gating_probs":[1],"token_idx":0}`), want: "line 1: the line is no row: json: cannot unmarshal number 1.5"},
		{name: "id outside", files: one(row(`"layer":0,"experts":[8,1],"gating_probs":[0.5,0.5],"token_idx":0`)), tokens: told, want: "line 5: layer 0: expert id 8 is outside"},
		{name: "token skipped", files: one(row(`"layer":0,"experts":[0,1],"gating_probs":[0.5,0.5],"token_idx":1`)), tokens: told, want: "line 5: layer 0, token_idx 1 comes after"},
		{name: "ragged", files: one(specText([2]int{1, 1}, [2]int{9, 5})), want: "ragged: layer 1 has 5 rows of the problem, but layer 0 has 9", tokens: []string{
			told[0], told[1], "1/1 decode 0 3|1 3" + weights, "1/2 decode 0 4|1 4" + weights, "1/3 decode 0 5|1 5" + weights, "1/4 decode 0 2|1 2" + weights}},
		{name: "cut", files: one(specText([2]int{1, 1}, [2]int{1, 1}) + `{"dataset": "gsm8k", "prob`), tokens: told, want: "line 5: the line is no row: unexpected end"},
	})
}

func FuzzSpeculative(f *testing.F) {
	fuzzForm(f, "speculative-moe", Options{Experts: 8}, specText([2]int{2, 2}, [2]int{2, 1}))
}
