package importer

import (
	"fmt"
	"strings"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

const (
	labMeta1 = `{"format":"moe-cache-lab.routing-jsonl","format_version":1,"model_id":"m","record_type":"metadata","experts_per_token":2,"num_experts":8,"source_text":null}` + "\n"
	labMeta2 = `{"format":"moe-cache-lab.routing-jsonl","format_version":2,"model_id":"m","record_type":"metadata","routing_stages":[{"allows_unassigned":true,"assigned_experts_per_token":1,"num_experts":4,"routing_stage":"encoder"},{"allows_unassigned":true,"assigned_experts_per_token":1,"num_experts":8,"routing_stage":"decoder"}]}` + "\n"
)

// labRow is a selection of version 1.
func labRow(phase string, layer, pos int, ids, rest string) string {
	return fmt.Sprintf(`{"layer":%d,"phase":%q,"record_type":"routing_selection","selected_experts":%s,"token_position":%d%s}`+"\n", layer, phase, ids, pos, rest)
}

// labStaged is a selection of version 2 with one expert, or none if id is negative.
func labStaged(stage, phase string, layer, pos, id int) string {
	state, ids := "assigned", fmt.Sprintf("[%d]", id)
	if id < 0 {
		state, ids = `unassigned","unassigned_reason":"capacity`, "[]"
	}
	return labRow(phase, layer, pos, ids, fmt.Sprintf(`,"routing_stage":%q,"assignment_state":"%s","selected_probabilities":[]`, stage, state))
}

func labHeader() trace.Header {
	return trace.Header{
		Model: "m", Shape: layout.Shape{Layers: 2, Experts: 8, TopK: 2, LayerIDs: []int{1, 3}}, Source: "imported from moe-cache-lab: t.jsonl",
		IDs: trace.IDsLogical, Sequences: trace.Yes,
	}
}

func TestCacheLab(t *testing.T) {
	t.Run("version 1", func(t *testing.T) {
		h := labHeader()
		h.Weights, h.Ranked, h.Tokens, h.Source = true, trace.Yes, true, h.Source+" and 1 more"
		const w = `,"selected_probabilities":[0.5,0.25]`
		text := labMeta1 +
			labRow("prompt", 1, 0, "[3,1]", w+`,"token_id":70`) + labRow("prompt", 1, 1, "[2,1]", w) +
			labRow("prompt", 3, 0, "[7,1]", w+`,"token_id":70`) + labRow("prompt", 3, 1, "[6,1]", w) +
			labRow("generated", 1, 2, "[3,0]", w) + labRow("generated", 3, 2, "[7,0]", w) +
			labRow("generated", 1, 4, "[4,0]", w) + labRow("generated", 3, 4, "[5,0]", w)
		const ww = " @ 0.5 0.25|0.5 0.25"
		sample{
			form: "moe-cache-lab", files: []named{{"t.jsonl", text}, {"u.jsonl", labMeta1 + labRow("generated", 1, 0, "[3,1]", w) + labRow("generated", 3, 0, "[7,1]", w)}}, header: h,
			tokens: []string{"0/0 prefill #70 3 1|7 1" + ww, "0/1 prefill #-1 2 1|6 1" + ww, "0/2 decode #-1 3 0|7 0" + ww, "0/4 decode #-1 4 0|5 0" + ww, "1/0 decode #-1 3 1|7 1" + ww},
		}.run(t)
	})
	t.Run("no shape", func(t *testing.T) {
		h := labHeader()
		text := strings.Replace(labMeta1, `"experts_per_token":2,"num_experts":8`, `"experts_per_token":null`, 1) + labRow("prompt", 1, 0, "[3,1]", "") + labRow("prompt", 3, 0, "[7]", "")
		sample{form: "moe-cache-lab", files: []named{{"t.jsonl", text}}, opts: Options{Experts: 8, TopK: 2}, header: h, tokens: []string{"0/0 prefill 3 1|7"}}.run(t)
		refuses(t, "moe-cache-lab", Options{Experts: 8}, []brokenCase{{name: "uneven", files: []named{{"t.jsonl", text}}, want: "give --top-k", is: ErrNeedShape}})
	})
	t.Run("version 2", func(t *testing.T) {
		h := labHeader()
		h.Shape.TopK = 1
		text := labMeta2 + labStaged("encoder", "source", 1, 0, 3) + labStaged("encoder", "source", 5, 0, 3) +
			labStaged("decoder", "decoder_prompt", 1, 0, 5) + labStaged("decoder", "decoder_prompt", 3, 0, 6) +
			labStaged("decoder", "decoder_generated", 1, 1, -1) + labStaged("decoder", "decoder_generated", 3, 1, 7)
		sample{
			form: "moe-cache-lab", files: []named{{"t.jsonl", text}}, header: h,
			tokens: []string{"0/0 prefill 5|6", "0/1 decode |7"},
			notes:  []string{"2 rows of the encoder were left out"},
		}.run(t)
	})
}

func TestCacheLabDamaged(t *testing.T) {
	one := func(text string) []named { return []named{{"t.jsonl", text}} }
	good := labMeta1 + labRow("prompt", 1, 0, "[3,1]", "") + labRow("prompt", 3, 0, "[7,1]", "") + labRow("generated", 1, 1, "[3,0]", "") + labRow("generated", 3, 1, "[7,0]", "")
	told := []string{"0/0 prefill 3 1|7 1", "0/1 decode 3 0|7 0"}
	refuses(t, "moe-cache-lab", Options{}, []brokenCase{
		{name: "empty", files: one(""), want: "holds no row"},
		{name: "no selections", files: one(labMeta1), want: "holds no row"},
		{name: "no JSON", files: one("x"), want: "line 1: the line is no record"},
		{name: "no metadata", files: one(labRow("prompt", 1, 0, "[1]", "")), want: "line 1: the first record is no metadata"},
		{name: "version", files: one(strings.Replace(labMeta1, `_version":1`, `_version":3`, 1)), want: "line 1: format_version is 3"},
		{name: "no stages", files: one(strings.Replace(labMeta1, `_version":1`, `_version":2`, 1)), want: "line 1: the metadata has no routing_stages"},
		{name: "other file", files: []named{{"t.jsonl", good}, {"u.jsonl", strings.Replace(labMeta1, `"num_experts":8`, `"num_experts":9`, 1)}}, tokens: told, want: "line 1: it is of model \"m\" (version 1, 9 experts"},
		{name: "record type", files: one(good + labMeta1), tokens: told, want: `line 6: record_type is "metadata"`},
		{name: "phase", files: one(good + labRow("source", 1, 2, "[1,2]", "")), tokens: told, want: `line 6: phase "source"`},
		{name: "stage", files: one(labMeta2 + labStaged("encoder", "decoder_prompt", 1, 0, 1)), want: `line 2: phase "decoder_prompt" of routing_stage "encoder"`},
		{name: "position", files: one(good + labRow("generated", 1, -1, "[1,2]", "")), tokens: told, want: "line 6: the record needs a token_position"},
		{name: "token", files: one(good + labRow("generated", 1, 2, "[1,2]", `,"token_id":-4`)), tokens: told, want: "line 6: token_id is -4"},
		{name: "probabilities", files: one(good + labRow("generated", 1, 2, "[1,2]", `,"selected_probabilities":[1]`)), tokens: told, want: "line 6: the record has 1 probabilities for 2 experts"},
		{name: "width", files: one(good + labRow("generated", 1, 2, "[1]", "")), tokens: told, want: "line 6: the record has 1 experts, but the metadata says 2"},
		{name: "empty assigned", files: one(strings.Replace(labMeta2, "x", "x", 1) + strings.Replace(labStaged("decoder", "decoder_prompt", 1, 0, 1), "[1]", "[]", 1)), want: "line 2: the record has 0 experts, but the metadata says 1"},
		{name: "outside", files: one(good + labRow("generated", 1, 2, "[1,8]", "")), tokens: told, want: "line 6: layer 1: expert id 8 is outside 0 to 7"},
		{name: "position again", files: one(good + labRow("generated", 1, 0, "[1,2]", "")), tokens: told, want: "line 6: position 0 of layer 1 comes again, or late: after 1"},
		{name: "prompt again", files: one(good + labRow("prompt", 1, 2, "[1,2]", "")), tokens: told, want: "line 6: a row of the prompt comes after generated ones"},
		{name: "prompt order", files: one(labMeta1 + labRow("prompt", 1, 1, "[3,1]", "") + labRow("prompt", 1, 0, "[7,1]", "")), want: "line 3: position 0 of layer 1 comes again", tokens: []string{"0/1 prefill 3 1"}},
		{name: "layer missing", files: one(good + labRow("generated", 1, 2, "[1,2]", "")), tokens: told, want: "line 6: ragged: layer 3 has 0 rows"},
		{name: "cut", files: one(good + `{"layer":`), tokens: told, want: "line 6: the line is no record: unexpected end"},
	})
}

func FuzzCacheLab(f *testing.F) {
	fuzzForm(f, "moe-cache-lab", Options{},
		labMeta1+labRow("prompt", 1, 0, "[3,1]", "")+labRow("prompt", 3, 0, "[7,1]", "")+labRow("generated", 1, 1, "[3,0]", "")+labRow("generated", 3, 1, "[7,0]", ""),
		labMeta2+labStaged("encoder", "source", 1, 0, 3)+labStaged("decoder", "decoder_generated", 1, 1, -1)+labStaged("decoder", "decoder_generated", 1, 2, 2))
}
