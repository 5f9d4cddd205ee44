package importer

import (
	"testing"

	"outrider/layout"
	"outrider/trace"
)

const beyondText = `Layer ID,Batch Number,Token,Activated Expert IDs
1,0,<s>,"[3, 1]"
1,0,"a,""b""","[0, 2]"
3,0,<s>,"[7, 4]"
3,0,"a,""b""","[5, 6]"
`

const collectedText = `Prompt File,Layer ID,Batch Number,Activated Expert IDs
p/prompt_1_data.csv,1,0,3 1
p/prompt_1_data.csv,3,0,7 4
p/prompt_2_data.csv,1,0,0 2
p/prompt_2_data.csv,1,1,1 2
p/prompt_2_data.csv,3,0,5 6
p/prompt_2_data.csv,3,1,6 7
`

func beyondTrace(source string) trace.Header {
	return trace.Header{
		Shape: layout.Shape{Layers: 2, Experts: 8, TopK: 2, LayerIDs: []int{1, 3}},
		Phase: trace.Prefill, Source: source, IDs: trace.IDsLogical, Sequences: trace.Yes,
	}
}

func TestMoEBeyond(t *testing.T) {
	t.Run("published", func(t *testing.T) {
		sample{
			form:   "moe-beyond",
			files:  []named{{"prompt_1.csv", beyondText}, {"prompt_2.csv", beyondText}, {"prompt_3.csv", beyondText[:49]}},
			opts:   Options{Experts: 8},
			header: beyondTrace("imported from moe-beyond: prompt_1.csv and 2 more"),
			tokens: []string{"0/0 prefill 3 1|7 4", "0/1 prefill 0 2|5 6", "1/0 prefill 3 1|7 4", "1/1 prefill 0 2|5 6"},
			notes:  []string{"prompt_3.csv holds no rows"},
		}.run(t)
	})
	t.Run("collected", func(t *testing.T) {
		sample{
			form:   "moe-beyond",
			files:  []named{{"all.csv", collectedText}},
			opts:   Options{Experts: 8, Layers: 2, TopK: 2},
			header: beyondTrace("imported from moe-beyond: all.csv"),
			tokens: []string{"0/0 prefill 3 1|7 4", "1/0 prefill 0 2|5 6", "2/0 prefill 1 2|6 7"},
		}.run(t)
	})
}

// The form does not tell how many experts there are, so the frame takes the
// least; nothing else may change by that.
func TestMoEBeyondLeastExperts(t *testing.T) {
	h := beyondTrace("imported from moe-beyond: all.csv")
	sample{
		form: "moe-beyond", files: []named{{"all.csv", collectedText}}, header: h,
		tokens: []string{"0/0 prefill 3 1|7 4", "1/0 prefill 0 2|5 6", "2/0 prefill 1 2|6 7"},
		notes:  []string{"8 is assumed"},
	}.run(t)
}

// All of the neutral file came from the sample: 250 of the 367 prompts that its
// notes name were kept in both.
func TestMoEBeyondShared(t *testing.T) {
	imp := sharedStream(t, Options{Experts: 64}, "raw/deepseek-v2-lite-moe-beyond/activations.csv.gz")
	if n := equalNeutral(t, imp, "deepseek-v2-lite-chat.jsonl.gz", nil); n != 30387 {
		t.Errorf("tokens: got %d, want 30387", n)
	}
}

func TestMoEBeyondDamaged(t *testing.T) {
	const head = "Layer ID,Batch Number,Token,Activated Expert IDs\n"
	one := func(text string) []named { return []named{{"p.csv", head + text}} }
	two := func(text string) []named { return []named{{"p.csv", beyondText}, {"q.csv", head + text}} }
	whole := []string{"0/0 prefill 3 1|7 4", "0/1 prefill 0 2|5 6"}
	refuses(t, "moe-beyond", Options{Experts: 8}, []brokenCase{
		{name: "other header", files: []named{{"p.csv", "Layer,Batch,Token,IDs\n1,0,a,[1]\n"}}, want: "the header is"},
		{name: "empty", files: []named{{"p.csv", ""}}, want: "the file ends inside its rows"},
		{name: "no rows", files: one(""), want: "holds no row"},
		{name: "no ids", files: one("1,0,a,[]\n"), want: "holds no row"},
		{name: "layer", files: one("x,0,a,[1]\n"), want: "line 2: layer id \"x\""},
		{name: "batch", files: one("1,-1,a,[1]\n"), want: "line 2: batch number \"-1\""},
		{name: "id", files: one("1,0,a,\"[1, b]\"\n"), want: "\"b\" in the list"},
		{name: "field missing", files: one("1,0,[1]\n"), want: "line 2: wrong number of fields"},
		{name: "open quote", files: one("1,0,\"a,[1]\n"), want: "line 2: extraneous or missing \" in quoted-field"},
		{name: "id outside", files: one("1,0,a,\"[1, 8]\"\n"), want: "line 2: layer 1: expert id 8 is outside 0 to 7"},
		{name: "negative id", files: one("1,0,a,\"[1, -1]\"\n"), want: "line 2: layer 1: expert id -1 is outside"},
		{name: "id twice", files: one("1,0,a,\"[1, 1]\"\n"), want: "expert id 1 is named twice"},
		{name: "short row", files: one("1,0,a,\"[1, 2]\"\n1,0,b,[1]\n"), tokens: []string{"0/0 prefill 1 2"}, want: "line 3: layer 1: the row has 1 expert ids, want top-k 2"},
		{name: "ragged", files: two("1,0,a,\"[1, 2]\"\n1,0,b,\"[1, 2]\"\n3,0,a,\"[4, 5]\"\n"),
			tokens: append(whole[:2:2], "1/0 prefill 1 2|4 5"), want: "line 4: ragged: layer 3 has 1 rows of the pass, but layer 1 has 2"},
		{name: "layer missing", files: two("1,0,a,\"[1, 2]\"\n"), tokens: whole, want: "ragged: layer 3 has 0 rows"},
		{name: "other layer", files: two("2,0,a,\"[1, 2]\"\n"), tokens: whole, want: "layer 2 is none of the 2 layers before"},
		{name: "layer again", files: two("3,0,a,\"[1, 2]\"\n1,0,a,\"[1, 2]\"\n"), tokens: whole, want: "layer 1, batch 0 comes after layer 3, batch 0"},
		{name: "cut in a row", files: two("1,0,a,\"[1, 2]\"\n3,0,a,\"[4, 5]\"\n3,0,\"b"), tokens: append(whole[:2:2], "1/0 prefill 1 2|4 5"), want: "line 4"},
	})
}

func FuzzMoEBeyond(f *testing.F) {
	fuzzForm(f, "moe-beyond", Options{Experts: 8}, beyondText, collectedText, "Layer ID,Batch Number,Token,Activated Expert IDs\n1,0,\"a\n")
}
