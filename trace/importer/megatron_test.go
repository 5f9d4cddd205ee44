package importer

import (
	"fmt"
	"strings"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

// tracerText is a line of the decoder, top-k 2.
func tracerText(step, layer, rank, tokens int, indices string) string {
	return fmt.Sprintf(`{"step": %d, "stage": "pre_dispatch", "block": "decoder", "layer": %d, "rank": %d, "num_tokens": %d, "topk": 2, "top_indices": %s}`+"\n",
		step, layer, rank, tokens, indices)
}

func TestMegatron(t *testing.T) {
	head := strings.Replace(tracerText(0, 2, 0, 1, "[[1, 1]]"), `"decoder"`, `"mtp", "mtp_idx": 0`, 1)
	rank0 := tracerText(0, 2, 0, 2, "[[3, 1], [2, 1]]") + tracerText(0, 4, 0, 2, "[[7, 1], [6, 1]]") + head +
		// A second micro-batch of the step, then a step of one token.
		tracerText(0, 2, 0, 1, "[[5, 1]]") + tracerText(0, 4, 0, 1, "[[4, 1]]") +
		tracerText(1, 2, 0, 1, "[[0, 1]]") + tracerText(1, 4, 0, 1, "[[1, 0]]")
	rank1 := tracerText(0, 2, 1, 0, "[]") + tracerText(0, 4, 1, 0, "[]") + tracerText(1, 2, 1, 1, "[[6, 5]]") + tracerText(1, 4, 1, 1, "[[5, 6]]")
	sample{
		form: "megatron", files: []named{{"hidden_states_rank0.bin", "\x00\x01"}, {"router_trace_rank0.jsonl", rank0}, {"router_trace_rank1.jsonl", rank1}}, opts: Options{Experts: 8, Model: "m"},
		header: trace.Header{
			Model: "m", Shape: layout.Shape{Layers: 2, Experts: 8, TopK: 2, LayerIDs: []int{2, 4}}, Source: "imported from megatron: router_trace_rank0.jsonl and 1 more",
			IDs: trace.IDsLogical, Sequences: trace.No,
		},
		tokens: []string{"0/0 unknown 3 1|7 1", "0/1 unknown 2 1|6 1", "0/2 unknown 5 1|4 1", "0/3 unknown 0 1|1 0", "1/0 unknown 6 5|5 6"},
		notes:  []string{"1 files beside the traces", "1 lines of multi-token prediction heads were left out", "The 2 files are ranks"},
	}.run(t)
}

func TestMegatronDamaged(t *testing.T) {
	good := tracerText(0, 0, 0, 1, "[[3, 1]]") + tracerText(0, 1, 0, 1, "[[7, 1]]") + tracerText(1, 0, 0, 1, "[[3, 2]]") + tracerText(1, 1, 0, 1, "[[7, 2]]")
	told := []string{"0/0 unknown 3 1|7 1", "0/1 unknown 3 2|7 2"}
	next := func(old, new string) []named {
		return []named{{"t.jsonl", good + strings.Replace(tracerText(2, 0, 0, 1, "[[3, 1]]"), old, new, 1)}}
	}
	refuses(t, "megatron", Options{Experts: 8}, []brokenCase{
		{name: "empty", files: []named{{"t.jsonl", ""}}, want: "holds no row"},
		{name: "no JSON", files: []named{{"t.jsonl", "x"}}, want: "line 1: the line is no router trace"},
		{name: "stage", files: next("pre_dispatch", "post_dispatch"), tokens: told, want: `line 5: the stage is "post_dispatch"`},
		{name: "step", files: next(`"step": 2, `, ""), tokens: told, want: "line 5: the line needs a step"},
		{name: "num_tokens", files: next(`"num_tokens": 1`, `"num_tokens": 2`), tokens: told, want: "line 5: layer 0: top_indices has 1 rows, but num_tokens is 2"},
		{name: "topk", files: next(`"topk": 2`, `"topk": 3`), tokens: told, want: "line 5: layer 0: top_indices has 2 ids a row, but topk is 3"},
		{name: "other topk", files: next(`"topk": 2, "top_indices": [[3, 1]]`, `"topk": 1, "top_indices": [[3]]`), tokens: told, want: "line 5: token 0: layer 0: the row has 1 expert ids"},
		{name: "no rows", files: next("[[3, 1]]", "null"), tokens: told, want: "line 5: the line is no router trace: want an array of rows"},
		{name: "ragged rows", files: next(`1, "topk": 2, "top_indices": [[3, 1]]`, `2, "topk": 2, "top_indices": [[3, 1], [2]]`), tokens: told, want: "line 5: the line is no router trace: ragged: row 1 has 1 ids"},
		{name: "outside", files: next("[[3, 1]]", "[[3, 8]]"), tokens: told, want: "line 5: token 0: layer 0: expert id 8 is outside 0 to 7"},
		{name: "layer missing", files: next("x", "x"), tokens: told, want: "line 5: ragged: layer 1 has 0 rows of the pass, but layer 0 has 1"},
		{name: "cut", files: []named{{"t.jsonl", good + `{"step": 2, "sta`}}, tokens: told, want: "line 5: the line is no router trace: unexpected end"},
	})
}

func FuzzMegatron(f *testing.F) {
	fuzzForm(f, "megatron", Options{Experts: 8}, tracerText(0, 0, 0, 2, "[[3, 1], [2, 1]]")+tracerText(0, 1, 0, 2, "[[7, 1], [6, 1]]")+tracerText(1, 0, 0, 1, "[[3, 1]]")+tracerText(1, 1, 0, 1, "[[3, 1]]"))
}
