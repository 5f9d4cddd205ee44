package importer

import (
	"strings"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

const (
	gatePrefill = `{"model_name": "m", "time": "2025-06-01 10:00:00.000001", "phase": "prefill", "experts": [[[3, 1], [2, 1]], [[7, 1], [6, 1]]]}`
	gateDecode  = `{"model_name": "m", "time": "2025-06-01 10:00:00.000002", "phase": "decode", "experts": [[[0, 1]], [[5, 4]]]}`
	gateWarm    = `{"model_name": "m", "time": "2025-06-01 09:00:00.000000", "phase": "decode", "experts": [[[1, 0]], [[1, 0]], [[4, 0]], [[5, 0]]]}`
)

func gateText(records ...string) string {
	return `{"records": [` + strings.Join(records, ", ") + `]}`
}

func gateHeader() trace.Header {
	return trace.Header{
		Model: "m", Shape: layout.Shape{Layers: 2, Experts: 8, TopK: 2}, Source: "imported from vllm-moe-trace: moe.json",
		IDs: trace.IDsLogical, Ranked: trace.Yes, Sequences: trace.No,
	}
}

func TestVLLMTrace(t *testing.T) {
	t.Run("plain", func(t *testing.T) {
		old := strings.Replace(gateDecode, `"phase": "decode", `, "", 1)
		sample{
			form: "vllm-moe-trace", files: []named{{"moe.json", gateText(gatePrefill, gateDecode, old)}}, opts: Options{Experts: 8}, header: gateHeader(),
			tokens: []string{"0/0 prefill 3 1|7 1", "0/1 prefill 2 1|6 1", "0/2 decode 0 1|5 4", "0/3 unknown 0 1|5 4"},
		}.run(t)
	})
	t.Run("several passes in a record", func(t *testing.T) {
		sample{
			form: "vllm-moe-trace", files: []named{{"moe.json", gateText(gateWarm, gatePrefill)}}, opts: Options{Experts: 8, Layers: 2}, header: gateHeader(),
			tokens: []string{"0/0 unknown 1 0|1 0", "0/1 decode 4 0|5 0", "0/2 prefill 3 1|7 1", "0/3 prefill 2 1|6 1"},
			notes:  []string{"1 passes shared a record"},
		}.run(t)
	})
}

func TestVLLMTraceDamaged(t *testing.T) {
	one := func(text string) []named { return []named{{"moe.json", text}} }
	told := []string{"0/0 prefill 3 1|7 1", "0/1 prefill 2 1|6 1"}
	with := func(old, new string) []named {
		return one(gateText(gatePrefill, strings.Replace(gateDecode, old, new, 1)))
	}
	refuses(t, "vllm-moe-trace", Options{Experts: 8, Layers: 2}, []brokenCase{
		{name: "empty", files: one(""), want: "the file ends inside the records"},
		{name: "no object", files: one("[5]"), want: `want "{" of the records, got "5"`},
		{name: "records no list", files: one(`{"records": 5}`), want: `want "[" of the records`},
		{name: "no records", files: one(gateText()), want: "give --top-k", is: ErrNeedShape},
		{name: "flat gate call", files: with("[[0, 1]]", "[0, 1]"), tokens: told, want: "want an array of rows"},
		{name: "outside", files: with("[[0, 1]]", "[[0, 8]]"), tokens: told, want: "gate call 0 of the record, token 0: layer 0: expert id 8 is outside"},
		{name: "short row", files: with("[[0, 1]]", "[[0]]"), tokens: told, want: "the row has 1 expert ids"},
		{name: "gate calls", files: with("[[0, 1]], ", ""), tokens: told, want: "ragged: the record has 1 gate calls, want a pass's 2"},
		{name: "ragged", files: with("[[0, 1]]", "[[0, 1], [1, 2]]"), tokens: append(told[:2:2], "0/2 decode 0 1|5 4"), want: "ragged: layer 1 has 1 rows of the pass, but layer 0 has 2"},
		{name: "phase kind", files: with(`"decode"`, "5"), tokens: told, want: "cannot unmarshal number"},
		{name: "cut", files: one(gateText(gatePrefill, gateDecode)[:240]), tokens: told, want: "the file ends inside the records"},
	})
	refuses(t, "vllm-moe-trace", Options{Experts: 8}, []brokenCase{
		{name: "layers", files: one(gateText(gateWarm, gatePrefill)), want: "records have 2 to 4 gate calls, and some may be of several passes: give --layers", is: ErrNeedShape},
		{name: "nothing recorded", files: one(gateText(`{"model_name": "m", "experts": []}`)), want: "it holds no record"},
	})
}

func FuzzVLLMTrace(f *testing.F) {
	fuzzForm(f, "vllm-moe-trace", Options{Experts: 8}, gateText(gatePrefill, gateDecode), gateText(gateWarm))
}
