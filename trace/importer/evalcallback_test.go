package importer

import (
	"fmt"
	"strings"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

// evalWriter prints tensors as llama.cpp's callback does: at most three at each
// end of a dimension.
type evalWriter struct{ strings.Builder }

func (w *evalWriter) tensor(name, kind, op string, dims [4]int, values ...float32) {
	shape := fmt.Sprintf("%d, %d, %d, %d", dims[0], dims[1], dims[2], dims[3])
	fmt.Fprintf(w, "common_debug_cb_eval: %24s = (%s) %10s(%s, }) = {%s}\n", name, kind, op[:strings.Index(op, "(")], op[strings.Index(op, "(")+1:], shape)
	gap := func(i *int, n int, text string) {
		if *i == 3 && n > 6 {
			w.WriteString(text)
			*i = n - 3
		}
	}
	sum := float32(0)
	for _, v := range values {
		sum += v
	}
	w.WriteString("    [\n")
	for i2 := 0; i2 < dims[2]; i2++ {
		gap(&i2, dims[2], "        ..., \n")
		w.WriteString("        [\n")
		for i1 := 0; i1 < dims[1]; i1++ {
			gap(&i1, dims[1], "            ..., \n")
			w.WriteString("            [")
			for i0 := 0; i0 < dims[0]; i0++ {
				gap(&i0, dims[0], "   ..., ")
				fmt.Fprintf(w, "%12.4f", values[(i2*dims[1]+i1)*dims[0]+i0])
				if i0 < dims[0]-1 {
					w.WriteString(", ")
				}
			}
			w.WriteString("  ],\n")
		}
		w.WriteString("        ],\n")
	}
	fmt.Fprintf(w, "    ]\n    sum = %f\n", sum)
}

// layer prints what the graph has of a router, with weights normalised.
func (w *evalWriter) layer(block, experts, k int, ids ...float32) {
	tokens := len(ids) / k
	probs, plain, norm := make([]float32, experts*tokens), make([]float32, k*tokens), make([]float32, k*tokens)
	for i := range plain {
		plain[i], norm[i] = 0.125, float32(i+1)/16
	}
	w.tensor(fmt.Sprintf("ffn_moe_probs-%d", block), "f32", fmt.Sprintf("SOFT_MAX(ffn_moe_logits-%d{%d, %d, 1, 1}", block, experts, tokens), [4]int{experts, tokens, 1, 1}, probs...)
	w.tensor(fmt.Sprintf("ffn_moe_topk-%d", block), "i32", fmt.Sprintf("VIEW(ffn_moe_argsort-%d{%d, %d, 1, 1}", block, experts, tokens), [4]int{k, tokens, 1, 1}, ids...)
	w.tensor(fmt.Sprintf("ffn_moe_probs-%d (reshaped)", block), "f32", "RESHAPE(x{1, 1, 1, 1}", [4]int{1, experts, tokens, 1}, probs...)
	w.tensor(fmt.Sprintf("ffn_moe_weights-%d", block), "f32", "GET_ROWS(x{1, 1, 1, 1}", [4]int{1, k, tokens, 1}, plain...)
	w.tensor(fmt.Sprintf("ffn_moe_weights_sum-%d", block), "f32", "SUM_ROWS(x{1, 1, 1, 1}", [4]int{1, tokens, 1, 1}, make([]float32, tokens)...)
	w.tensor(fmt.Sprintf("ffn_moe_weights_norm-%d", block), "f32", "DIV(x{1, 1, 1, 1}", [4]int{k, tokens, 1, 1}, norm...)
}

func evalSample() string {
	var w evalWriter
	w.WriteString("0.01.234.567 I system_info: n_threads = 4\n")
	w.tensor("embd", "f32", "GET_ROWS(token_embd.weight{8, 100, 1, 1}", [4]int{8, 2, 1, 1}, make([]float32, 16)...)
	w.layer(0, 64, 3, 17, 3, 60, 9, 17, 0)
	w.layer(1, 64, 3, 1, 2, 63)
	w.layer(0, 64, 3, 5, 6, 7)
	w.layer(1, 64, 3, 7, 6, 5)
	return w.String()
}

func TestEvalCallback(t *testing.T) {
	i := txOpen(t, formEvalCallback, Options{}, txFile(t, "eval.txt", evalSample()))
	h := i.Header()
	if want := (layout.Shape{Layers: 2, Experts: 64, TopK: 3}); fmt.Sprint(h.Shape) != fmt.Sprint(want) || !h.Weights || h.IDs != trace.IDsLogical {
		t.Errorf("header is %+v, want shape %+v and weights", h, want)
	}
	a, b := []float32{1. / 16, 2. / 16, 3. / 16}, []float32{4. / 16, 5. / 16, 6. / 16}
	round := func(parts ...[]float32) (all []float32) {
		for _, part := range parts {
			for _, v := range part {
				var r float32
				fmt.Sscanf(fmt.Sprintf("%.4f", v), "%f", &r)
				all = append(all, r)
			}
		}
		return all
	}
	none := []float32{0, 0, 0}
	txWantTokens(t, i, []trace.Activation{
		{Pos: 0, Phase: trace.Prefill, Token: -1, Experts: []int32{17, 3, 60, -1, -1, -1}, Weights: round(a, none)},
		{Pos: 1, Phase: trace.Prefill, Token: -1, Experts: []int32{9, 17, 0, 1, 2, 63}, Weights: round(b, a)},
		{Pos: 2, Token: -1, Experts: []int32{5, 6, 7, 7, 6, 5}, Weights: round(a, a)},
	})
	txWantNote(t, i, "four decimals")

	// An older version's function, no weights, and a log in between.
	var w evalWriter
	w.tensor("ffn_moe_topk-4", "i32", "TOP_K(x{16, 1, 1, 1}", [4]int{2, 1, 1, 1}, 7, 8)
	text := strings.Replace(w.String(), "common_debug_cb_eval", "ggml_debug", 1)
	text = strings.Replace(text, "    [\n", "    [\nI slot 1, released\n", 1)
	i = txOpen(t, formEvalCallback, Options{}, txFile(t, "eval.txt", text))
	txWantTokens(t, i, []trace.Activation{{Token: -1, Experts: []int32{7, 8}}})
	if h := i.Header(); h.Weights || h.Shape.LayerIDs[0] != 4 {
		t.Errorf("header is %+v, want block 4 without weights", h)
	}
}

func TestEvalCallbackDamage(t *testing.T) {
	print := func(fn func(w *evalWriter)) string {
		var w evalWriter
		fn(&w)
		return w.String()
	}
	one := func(k, tokens int, ids ...float32) string {
		return print(func(w *evalWriter) {
			w.tensor("ffn_moe_topk-0", "i32", "VIEW(x{64, 1, 1, 1}", [4]int{k, tokens, 1, 1}, ids...)
		})
	}
	ok := evalSample()
	txRunDamage(t, formEvalCallback, "eval.txt", Options{}, []txDamage{
		{name: "top-k over 6", content: one(8, 1, 1, 2, 3, 4, 5, 6, 7, 8), want: "line 4: the recording is incomplete: tensor ffn_moe_topk-0 of shape [8 1 1 1] was printed with gaps", is: ErrLossy},
		{name: "tokens over 6", content: one(1, 7, 1, 2, 3, 4, 5, 6, 7), want: "line 7: the recording is incomplete", is: ErrLossy},
		{name: "no router", content: print(func(w *evalWriter) { w.tensor("embd", "f32", "X(", [4]int{1, 1, 1, 1}, 0) }), want: "it holds no choice of experts"},
		{name: "not whole", content: one(2, 1, 3, 4.5), want: "4.5 is no expert id"},
		{name: "negative", content: one(2, 1, 3, -1), want: "-1 is no expert id"},
		{name: "not a number", content: strings.Replace(one(2, 1, 3, 4), "4.0000", "4.x000", 1), want: `"4.x000" is no number`},
		{name: "outside", content: one(2, 1, 3, 64), want: "line 1: expert id 64 is outside 0 to 63"},
		{name: "named twice", content: one(2, 2, 3, 4, 5, 5), want: "expert id 5 is named twice in a row"},
		{name: "too few values", content: strings.Replace(one(2, 2, 3, 4, 5, 6), "5.0000,", "", 1), want: "has 3 values, want 4"},
		{name: "too many values", content: strings.Replace(one(2, 2, 3, 4, 5, 6), "5.0000,", "5.0000, 7.0000, ", 1), want: "has more than its 4 values"},
		{name: "no end", content: strings.Replace(ok, "    sum = 106.000000\n", "", 1), want: "tensor ffn_moe_topk-0 ends after 6 of 6 values"},
		{name: "huge shape", content: strings.Replace(one(2, 1, 3, 4), "{2, 1, 1, 1}", "{999999, 999999, 1, 1}", 1), want: "want at most 67108864 values"},
		{name: "dimensions", content: strings.Replace(one(2, 1, 3, 4), "{2, 1, 1, 1}", "{2, 1, 2, 1}", 1), want: "want top-k, tokens, 1, 1"},
		{name: "other top-k", content: one(2, 1, 3, 4) + one(3, 1, 3, 4, 5), want: "top-k is 3, but was 2 before"},
		{name: "cut", content: ok[:strings.LastIndex(ok, "ffn_moe_topk-1 =")+100], want: "the file ends inside tensor ffn_moe_topk-1", tokens: 2},
		{name: "cut before the last layer", content: ok[:strings.LastIndex(ok, "ffn_moe_probs-1 =")], want: "it has no rows of block 1", tokens: 2},
	})
}

func FuzzEvalCallback(f *testing.F) {
	var w evalWriter
	w.layer(0, 16, 2, 3, 4, 5, 6)
	w.layer(1, 16, 2, 3, 4)
	txFuzz(f, formEvalCallback, "eval.txt", Options{}, w.String())
}
