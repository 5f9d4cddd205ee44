package importer

import (
	"fmt"
	"strings"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

// flowLine is an event; its token id is 100 more than its position.
func flowLine(request, phase string, forward, pos, layer int, ids, weights string) string {
	return fmt.Sprintf(`{"schema_version":"1.0.0","request_id":%q,"conversation_id":"c","turn_index":0,"phase":%q,"forward_id":%d,"hook_order":0,"token_index":%d,"token_id":%d,"layer_id":%d,"selected_expert_ids":%s,"selected_expert_weights":%s,"observed_at_ns":1}`+"\n",
		request, phase, forward, pos, 100+pos, layer, ids, weights)
}

func TestExpertflow(t *testing.T) {
	h := trace.Header{
		Shape: layout.Shape{Layers: 2, Experts: 8, TopK: 2, LayerIDs: []int{0, 4}}, Source: "imported from expertflow: trace.jsonl",
		Tokens: true, IDs: trace.IDsLogical, Sequences: trace.Yes,
	}
	prefill := flowLine("a", "prefill", 0, 0, 0, "[3,1]", "null") + flowLine("a", "prefill", 0, 1, 0, "[2,1]", "null") +
		flowLine("a", "prefill", 0, 0, 4, "[7,6]", "null") + flowLine("a", "prefill", 0, 1, 4, "[5,6]", "null")
	t.Run("no weights", func(t *testing.T) {
		// A decode pass of two requests, layer by layer.
		decode := flowLine("b", "decode", 1, 9, 0, "[3,1]", "null") + flowLine("a", "decode", 1, 2, 0, "[0,1]", "null") +
			flowLine("b", "decode", 1, 9, 4, "[4,1]", "null") + flowLine("a", "decode", 1, 2, 4, "[0,2]", "null")
		sample{
			form: "expertflow", files: []named{{"trace.jsonl", prefill + decode}}, opts: Options{Experts: 8}, header: h,
			tokens: []string{"0/0 prefill #100 3 1|7 6", "0/1 prefill #101 2 1|5 6", "1/9 decode #109 3 1|4 1", "0/2 decode #102 0 1|0 2"},
		}.run(t)
	})
	t.Run("some weights", func(t *testing.T) {
		sample{
			form: "expertflow", opts: Options{Experts: 8}, header: h,
			files:  []named{{"trace.jsonl", prefill + flowLine("a", "decode", 1, 2, 0, "[0,1]", "[0.5,0.5]") + flowLine("a", "decode", 1, 2, 4, "[0,2]", "null")}},
			tokens: []string{"0/0 prefill #100 3 1|7 6", "0/1 prefill #101 2 1|5 6", "0/2 decode #102 0 1|0 2"},
			notes:  []string{"5 of 6 rows have no gate weights"},
		}.run(t)
	})
	t.Run("weights", func(t *testing.T) {
		h := h
		h.Weights, h.Ranked, h.Shape = true, trace.Yes, layout.Shape{Layers: 1, Experts: 8, TopK: 2}
		sample{
			form: "expertflow", opts: Options{Experts: 8}, header: h,
			files:  []named{{"trace.jsonl", flowLine("a", "decode", 1, 2, 0, "[0,1]", "[0.5,0.25]")}},
			tokens: []string{"0/2 decode #102 0 1 @ 0.5 0.25"},
		}.run(t)
	})
}

func TestExpertflowShared(t *testing.T) {
	imp := sharedStream(t, Options{Experts: 128}, "raw/gemma4-26b-expertflow/replay-fixture.jsonl")
	got, err := readOut(imp)
	if err != nil || len(got) != 8 {
		t.Fatalf("got %d tokens, %v; want the fixture's 8", len(got), err)
	}
	for i, want := range map[int]string{0: "0/0 prefill #2 102 79 114 81 58 83 54 46", 7: "0/7 prefill #236825 118 46 89 102 90 72 83 110"} {
		if got[i] != want {
			t.Errorf("token %d: got %s, want %s", i, got[i], want)
		}
	}
	if shape := imp.Header().Shape; shape.Layers != 1 || shape.TopK != 8 {
		t.Errorf("shape: got %+v, want 1 layer, top-k 8", shape)
	}
}

func TestExpertflowDamaged(t *testing.T) {
	good := flowLine("a", "decode", 0, 0, 0, "[3,1]", "null") + flowLine("a", "decode", 0, 0, 1, "[3,1]", "null") +
		flowLine("a", "decode", 1, 1, 0, "[3,1]", "null") + flowLine("a", "decode", 1, 1, 1, "[3,1]", "null")
	told := []string{"0/0 decode #100 3 1|3 1", "0/1 decode #101 3 1|3 1"}
	after := func(text string) []named { return []named{{"t.jsonl", good + text}} }
	next := func(old, new string) []named {
		return after(strings.Replace(flowLine("a", "decode", 2, 2, 0, "[3,1]", "null"), old, new, 1))
	}
	refuses(t, "expertflow", Options{Experts: 8}, []brokenCase{
		{name: "empty", files: []named{{"t.jsonl", ""}}, want: "holds no row"},
		{name: "no JSON", files: []named{{"t.jsonl", "x"}}, want: "line 1: the line is no router event"},
		{name: "cut in the first pass", files: []named{{"t.jsonl", good[:400]}}, want: "line 2: the line is no router event: unexpected end"},
		{name: "version", files: next("1.0.0", "1.1.0"), tokens: told, want: `line 5: schema_version is "1.1.0"`},
		{name: "request", files: next(`"a"`, `""`), tokens: told, want: "line 5: request_id has 0 bytes"},
		{name: "phase", files: next("decode", "train"), tokens: told, want: `line 5: phase is "train"`},
		{name: "forward", files: next(`"forward_id":2,`, ""), tokens: told, want: "line 5: the event needs a forward_id"},
		{name: "token", files: next(`"token_id":102`, `"token_id":4294967295`), tokens: told, want: "line 5: token_id is 4294967295"},
		{name: "layer", files: next(`"layer_id":0`, `"layer_id":-1`), tokens: told, want: "line 5: the event needs a forward_id, a token_index and a layer_id"},
		{name: "weights", files: next("null", "[1]"), tokens: told, want: "line 5: the event has 1 weights for 2 experts"},
		{name: "id kind", files: next("[3,1]", `["3",1]`), tokens: told, want: "line 5: the line is no router event: json"},
		{name: "id outside", files: next("[3,1]", "[3,8]"), tokens: told, want: "line 5: layer 0: expert id 8 is outside 0 to 7"},
		{name: "id twice", files: next("[3,1]", "[3,3]"), tokens: told, want: "expert id 3 is named twice"},
		{name: "short row", files: next("[3,1]", "[3]"), tokens: told, want: "the row has 1 expert ids"},
		{name: "layer missing", files: next("x", "x"), tokens: told, want: "line 5: ragged: layer 1 has 0 rows of the pass, but layer 0 has 1"},
		{name: "other token", files: after(flowLine("a", "decode", 2, 2, 0, "[3,1]", "null") + flowLine("a", "decode", 2, 3, 1, "[3,1]", "null")), tokens: told,
			want: "line 6: layer 1: row 0 of the pass is of position 3 (decode) of sequence 0, but in the layers before it is of position 2"},
	})
}

func FuzzExpertflow(f *testing.F) {
	fuzzForm(f, "expertflow", Options{Experts: 8}, flowLine("a", "prefill", 0, 0, 0, "[3,1]", "null")+flowLine("a", "decode", 1, 1, 0, "[3,1]", "[0.5,0.25]"))
}
