package importer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

const prefetchLogSample = `llama_context: n_ctx = 512
[EXPERT-TRACE] Layer 1: MoE layer detected (tensor 'ffn_moe_topk')
D [EXPERT-TRACE] Layer 1: Experts [3, 1, 0, 7]
D [EXPERT-TRACE] Layer 2: Experts [5, 4]
slot released
D [EXPERT-TRACE] Layer 1: Experts [2, 6]
D [EXPERT-TRACE] Layer 2: Experts [6, 2]
`

var prefetchLogOptions = Options{TopK: 2, Experts: 8}

func TestPrefetchLog(t *testing.T) {
	i := txOpen(t, formPrefetchLog, prefetchLogOptions, txFile(t, "log.txt", prefetchLogSample))
	if got, want := i.Header().Shape, (layout.Shape{Layers: 2, Experts: 8, TopK: 2, LayerIDs: []int{1, 2}}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("shape is %+v, want %+v", got, want)
	}
	txWantTokens(t, i, []trace.Activation{
		{Pos: 0, Token: -1, Experts: []int32{3, 1, -1, -1}},
		{Pos: 1, Token: -1, Experts: []int32{0, 7, 5, 4}},
		{Pos: 2, Token: -1, Experts: []int32{2, 6, 6, 2}},
	})
}

func TestPrefetchLogWarmUp(t *testing.T) {
	const layers, experts = 4, 32
	var b strings.Builder
	line := func(l int, ids []int32) {
		fmt.Fprintf(&b, "[EXPERT-TRACE] Layer %d: Experts %s\n", l, strings.ReplaceAll(fmt.Sprint(ids), " ", ", "))
	}
	r := rand.New(rand.NewPCG(3, 1))
	for l := range layers {
		line(l, slices.Concat(randomLists(r, 2, experts)...))
	}
	want := trace.Activation{Token: -1}
	for l := range layers {
		row := []int32{int32(l), 31}
		want.Experts = append(want.Experts, row...)
		line(l, row)
	}
	i := txOpen(t, formPrefetchLog, Options{TopK: 2, Experts: experts}, txFile(t, "log.txt", b.String()))
	txWantTokens(t, i, []trace.Activation{want})
	txWantNote(t, i, "1 passes (32 rows) were left out: they hold lists of all experts instead of choices, as in llama.cpp's warm-up")
}

func TestPrefetchLogDamage(t *testing.T) {
	ok := prefetchLogSample
	txRunDamage(t, formPrefetchLog, "log.txt", prefetchLogOptions, []txDamage{
		{name: "no top-k", content: ok, want: "give --top-k", is: ErrNeedShape, opts: &Options{Experts: 8}},
		{name: "only the graph", content: "[EXPERT-TRACE] Layer 1: MoE layer detected (tensor 'ffn_moe_topk')\n", want: "it holds no choice of experts"},
		{name: "no layer", content: ok + "[EXPERT-TRACE] Layer -1: Experts [1, 2]\n", want: "line 8: found \"-1: Experts [1, 2]\"", tokens: 2},
		{name: "cut in a line", content: ok + "[EXPERT-TRACE] Layer 1: Experts [1, ", want: "line 8: found", tokens: 2},
		{name: "no id", content: ok + "[EXPERT-TRACE] Layer 1: Experts [1, -1]\n", want: `line 8: "-1" is no expert id`, tokens: 2},
		{name: "outside", content: ok + "[EXPERT-TRACE] Layer 1: Experts [1, 8]\n", want: "line 8: expert id 8 is outside 0 to 7", tokens: 3},
		{name: "ragged", content: ok + "[EXPERT-TRACE] Layer 1: Experts [1, 2, 3]\n", want: "line 8: block 1 chose 3 experts in one pass", tokens: 3},
		{name: "named twice", content: ok + "[EXPERT-TRACE] Layer 1: Experts [1, 1]\n[EXPERT-TRACE] Layer 2: Experts [1, 2]\n", want: "line 8: layer 0: expert id 1 is named twice", tokens: 3},
		{name: "cut", content: ok + "[EXPERT-TRACE] Layer 1: Experts [1, 2]\n", want: "it has no rows of block 2", tokens: 3},
	})
}

func FuzzPrefetchLog(f *testing.F) {
	txFuzz(f, formPrefetchLog, "log.txt", prefetchLogOptions, prefetchLogSample)
}
