package importer

import (
	"compress/gzip"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

const moeTraceSample = "1,5\n1,2\n1,0\n1,7\n" + "2,3\n2,4\n2,4\n2,1\n" + "4,6\n4,0\n" + // two tokens; the last layer has one row
	"1,1\n1,2\n" + "2,3\n2,5\n" + "4,6\n4,7\n" +
	"1,2\n1,1\n" + "2,5\n2,3\n" + "4,7\n4,6\n"

var moeTraceOptions = Options{TopK: 2, Experts: 8}

func TestMoETrace(t *testing.T) {
	i := txOpen(t, formMoETrace, moeTraceOptions, txFile(t, "moe_trace.csv", moeTraceSample))
	want := trace.Header{
		Shape:  layout.Shape{Layers: 3, Experts: 8, TopK: 2, LayerIDs: []int{1, 2, 4}},
		Source: "imported from llama-moe-trace: moe_trace.csv", IDs: trace.IDsLogical,
	}
	h := i.Header()
	if fmt.Sprint(h) != fmt.Sprint(want) {
		t.Errorf("header is %+v, want %+v", h, want)
	}
	txWantTokens(t, i, []trace.Activation{
		{Pos: 0, Phase: trace.Prefill, Token: -1, Experts: []int32{5, 2, 3, 4, -1, -1}},
		{Pos: 1, Phase: trace.Prefill, Token: -1, Experts: []int32{0, 7, 4, 1, 6, 0}},
		{Pos: 2, Token: -1, Experts: []int32{1, 2, 3, 5, 6, 7}}, // may be the prompt's rest
		{Pos: 3, Phase: trace.Decode, Token: -1, Experts: []int32{2, 1, 5, 3, 7, 6}},
	})
	txWantNote(t, i, "In 1 passes the last layer has one row only")

	withPrompt := moeTraceOptions
	withPrompt.Prompt = 3
	i = txOpen(t, formMoETrace, withPrompt, txFile(t, "moe_trace.csv", "layer,expert\n"+moeTraceSample))
	tokens, err := txTokens(i)
	if err != nil {
		t.Fatal(err)
	}
	for pos, want := range []trace.Phase{trace.Prefill, trace.Prefill, trace.Prefill, trace.Decode} {
		if tokens[pos].Phase != want {
			t.Errorf("prompt of 3: token %d is %v, want %v", pos, tokens[pos].Phase, want)
		}
	}
}

// moeTraceWriter writes passes as the example does: the ids of a layer's
// tensor one after another. The router's choice is a view of a sorted list of all
// experts for each token; the first version read that list through, up to the
// number of ids.
type moeTraceWriter struct {
	strings.Builder
	topK    int
	strided bool
}

func (w *moeTraceWriter) layer(block int, sorted [][]int32) {
	var flat []int32
	for _, list := range sorted {
		if w.strided {
			flat = append(flat, list...)
		} else {
			flat = append(flat, list[:w.topK]...)
		}
	}
	for _, id := range flat[:len(sorted)*w.topK] {
		fmt.Fprintf(w, "%d,%d\n", block, id)
	}
}

func randomLists(r *rand.Rand, tokens, experts int) (lists [][]int32) {
	for range tokens {
		list := make([]int32, experts)
		for e, id := range r.Perm(experts) {
			list[e] = int32(id)
		}
		lists = append(lists, list)
	}
	return lists
}

func TestMoETraceRandom(t *testing.T) {
	const seed, layers, experts, topK = 71, 6, 64, 4
	for _, strided := range []bool{false, true} {
		r := rand.New(rand.NewPCG(seed, 1))
		w := moeTraceWriter{topK: topK, strided: strided}
		var want []trace.Activation
		for _, n := range []int{40, 7, 1, 1, 1, 30, 3, 1, 1} {
			tokens := make([]trace.Activation, n)
			for l := range layers {
				lists := randomLists(r, n, experts)
				w.layer(l, lists)
				for i := range tokens {
					tokens[i].Experts = append(tokens[i].Experts, lists[i][:topK]...)
				}
			}
			if strided && n > 1 {
				continue // they are not in the file
			}
			want = append(want, tokens...)
		}
		i := txOpen(t, formMoETrace, Options{TopK: topK, Experts: experts}, txFile(t, "moe_trace.csv", w.String()))
		got, err := txTokens(i)
		if err != nil || len(got) != len(want) {
			t.Fatalf("seed %d, strided %v: got %d tokens, %v, want %d", seed, strided, len(got), err, len(want))
		}
		for i := range want {
			if !slices.Equal(got[i].Experts, want[i].Experts) {
				t.Fatalf("seed %d, strided %v: token %d is %v, want %v", seed, strided, i, got[i].Experts, want[i].Experts)
			}
		}
		if strided {
			txWantNote(t, i, "4 passes (80 rows) were left out")
		}
	}
}

func TestMoETraceOnlySortedLists(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	w := moeTraceWriter{topK: 4, strided: true}
	for l := range 6 {
		w.layer(l, randomLists(r, 20, 64))
	}
	txRunDamage(t, formMoETrace, "moe_trace.csv", Options{TopK: 4, Experts: 64}, []txDamage{
		{name: "nothing is left", content: w.String(), want: "lists of all experts instead of choices, as the first moe-trace wrote of passes of several tokens: record with -ub 1", is: ErrLossy},
	})
}

func TestMoETraceDamage(t *testing.T) {
	ok := moeTraceSample
	txRunDamage(t, formMoETrace, "moe_trace.csv", moeTraceOptions, []txDamage{
		{name: "no top-k", content: ok, want: "give --top-k", is: ErrNeedShape, opts: &Options{Experts: 8}},
		{name: "other layers", content: ok, want: "the data has layers 3, but 4 was given", is: errAny, opts: &Options{TopK: 2, Experts: 8, Layers: 4}},
		{name: "empty", content: "", want: "it holds no choice of experts"},
		{name: "no numbers", content: ok + "1,x\n", want: `line 23: found "1,x", want a layer and an expert id`, tokens: 3},
		{name: "negative", content: ok + "-1,3\n", want: `line 23: found "-1,3"`, tokens: 3},
		{name: "expert outside", content: ok + "1,8\n", want: "line 23: expert id 8 is outside 0 to 7", tokens: 4},
		{name: "ragged row", content: "0,1\n0,2\n0,3\n1,1\n1,2\n1,3\n", want: "line 1: block 0 chose 3 experts in one pass, not a multiple of top-k 2"},
		{name: "ragged layers", content: "0,1\n0,2\n0,3\n0,4\n0,5\n0,6\n1,1\n1,2\n1,3\n1,4\n", want: "line 7: block 1 has rows of 2 tokens, but block 0 of 3 in the same pass: ragged"},
		{name: "named twice", content: strings.Replace(ok, "1,5\n1,2", "1,5\n1,5", 1), want: "line 1: layer 0: expert id 5 is named twice"},
		{name: "layer is missing", content: ok + "1,2\n1,1\n4,7\n4,6\n" + ok, want: "line 23: the pass that begins here has no rows of block 2", tokens: 4},
		{name: "cut inside a pass", content: ok + "1,2\n1,1\n2,7\n2,6\n", want: "line 25: the file ends inside the pass that begins at line 23: it has no rows of block 4", tokens: 4},
		{name: "cut inside a row", content: ok + "1,2\n1,1\n2,7\n", want: "line 25: block 2 chose 1 experts", tokens: 4},
		{name: "cut inside a line", content: strings.TrimSuffix(ok, "\n"), want: "line 22: the file ends inside a line", tokens: 3},
		{name: "no lines", content: ok + strings.Repeat("1", 100_000), want: "line 23: the line is longer than any", tokens: 3},
		{name: "too many layers", content: manyLayers(), want: "more than 4096 different layers"},
	})
}

// Of a packed file that was cut, what came before the cut is kept.
func TestMoETraceCutPacking(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 1))
	w := moeTraceWriter{topK: 4}
	for range 200 {
		for l := range 4 {
			w.layer(l, randomLists(r, 1, 64))
		}
	}
	var packed strings.Builder
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte(w.String())); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	o := Options{From: formMoETrace, TopK: 4, Experts: 64}
	whole, err := txTokens(txOpen(t, formMoETrace, o, txFile(t, "a.csv", w.String())))
	if err != nil || len(whole) != 200 {
		t.Fatalf("got %d tokens, %v, want 200", len(whole), err)
	}
	got, err := txTokens(txOpen(t, formMoETrace, o, txFile(t, "a.csv.gz", packed.String()[:packed.Len()/2])))
	var corrupt *trace.CorruptError
	if !errors.As(err, &corrupt) || len(got) < 50 || len(got) > 150 {
		t.Fatalf("got %d tokens and %v, want about half and the cut", len(got), err)
	}
	for i := range got {
		if !slices.Equal(got[i].Experts, whole[i].Experts) {
			t.Fatalf("token %d is %v, want %v", i, got[i].Experts, whole[i].Experts)
		}
	}
}

func manyLayers() string {
	var b strings.Builder
	for l := range layout.MaxLayers + 1 {
		fmt.Fprintf(&b, "%d,0\n", l)
	}
	return b.String()
}

func TestMoETraceIsNotSniffedElsewhere(t *testing.T) {
	for _, text := range []string{"1,2,3\n1,2,3\n", "5,1\n3,1\n4,1\n", "a,b\n1,2\n", "1,2\n"} {
		if sniffMoETrace(&peek{head: []byte(text), whole: true}) {
			t.Errorf("%q was found as a moe-trace", text)
		}
	}
}

func FuzzMoETrace(f *testing.F) {
	txFuzz(f, formMoETrace, "moe_trace.csv", moeTraceOptions, moeTraceSample, "layer,expert\n0,1\n0,2\n", "3,1\n3,9\n1,2\n")
}
