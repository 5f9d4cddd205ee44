package importer

import (
	"slices"
	"strings"
	"testing"

	"outrider/trace"
)

// mboltText is a file of 8 experts: header and records.
func mboltText(records ...[]int32) string {
	text := mboltMagic + int32Text(1, 8)
	for _, r := range records {
		text += int32Text(r...)
	}
	return text
}

// mboltPrompt is a prompt of two tokens, top 2, whose last layer has the last
// token's row only; mboltToken is a decoded token.
var (
	mboltPrompt = [][]int32{{1, 2, 2, 0, 1, 2, 3}, {2, 2, 2, 4, 5, 6, 7}, {3, 2, 1, 6, 5}}
	mboltToken  = [][]int32{{1, 2, 1, 7, 0}, {2, 2, 1, 1, 6}, {3, 2, 1, 5, 2}}
)

func TestMbolt(t *testing.T) {
	batch := [][]int32{{1, 2, 2, 0, 1, 2, 3}, {2, 2, 2, 4, 5, 6, 7}, {3, 2, 2, 6, 5, 0, 1}}
	i := txOpen(t, formMbolt, Options{Model: "m"}, txFile(t, "t.mbolt", mboltText(slices.Concat(mboltPrompt, mboltToken, batch)...)))
	h := i.Header()
	if s := h.Shape; s.Layers != 3 || s.Experts != 8 || s.TopK != 2 || !slices.Equal(s.LayerIDs, []int{1, 2, 3}) {
		t.Errorf("shape is %+v", s)
	}
	if h.IDs != trace.IDsLogical || h.Weights || h.Tokens || h.Sequences == trace.Yes || h.Ranked != trace.Unknown {
		t.Errorf("header is %+v", h)
	}
	txWantTokens(t, i, []trace.Activation{
		{Pos: 0, Phase: trace.Prefill, Token: -1, Experts: []int32{0, 1, 4, 5, -1, -1}},
		{Pos: 1, Phase: trace.Prefill, Token: -1, Experts: []int32{2, 3, 6, 7, 6, 5}},
		{Pos: 2, Phase: trace.Decode, Token: -1, Experts: []int32{7, 0, 1, 6, 5, 2}},
		{Pos: 3, Token: -1, Experts: []int32{0, 1, 4, 5, 6, 5}},
		{Pos: 4, Token: -1, Experts: []int32{2, 3, 6, 7, 0, 1}},
	})
	txWantNote(t, i, "In 1 passes the last layer has one row only")
}

// In the pass that llama.cpp warms up with, each token uses all experts.
func TestMboltWarmup(t *testing.T) {
	var warm [][]int32
	for layer := range int32(3) {
		warm = append(warm, []int32{layer + 1, 8, 1, 0, 1, 2, 3, 4, 5, 6, 7})
	}
	text := mboltText(slices.Concat(warm, mboltToken)...)
	i := txOpen(t, formMbolt, Options{}, txFile(t, "t.mbolt", text))
	txWantTokens(t, i, []trace.Activation{{Phase: trace.Decode, Token: -1, Experts: []int32{7, 0, 1, 6, 5, 2}}})
	txWantNote(t, i, "3 records in which each token uses all experts")
	txRunDamage(t, formMbolt, "t.mbolt", Options{}, []txDamage{
		{name: "nothing else", content: mboltText(warm...), want: "holds no choice"},
		{name: "cut", content: mboltText(warm...)[:70], want: "holds no choice"},
	})
}

// A killed program leaves a record or a pass unfinished: what is before counts.
func TestMboltTorn(t *testing.T) {
	whole := mboltText(slices.Concat(mboltPrompt, mboltToken, mboltToken)...)
	first := len(mboltText(slices.Concat(mboltPrompt, mboltToken)...))
	for cut := first; cut <= len(whole); cut++ {
		i := txOpen(t, formMbolt, Options{}, txFile(t, "t.mbolt", whole[:cut]))
		tokens, err := txTokens(i)
		want, note := 3, ""
		switch {
		case cut == len(whole):
			want = 4
		case cut >= first+20: // at least one record of the last pass
			note = "the pass that begins at byte"
		case cut > first:
			note = "the file ends inside the record after byte"
		}
		if err != nil || len(tokens) != want || !strings.Contains(strings.Join(i.Notes(), ""), note) {
			t.Errorf("cut to %d of %d bytes: got %d tokens, %v, notes %q; want %d and %q", cut, len(whole), len(tokens), err, i.Notes(), want, note)
		}
	}
}

func TestMboltDamage(t *testing.T) {
	// The pass before the damage is known to be whole only when the next begins.
	with := func(records ...[]int32) string { return mboltText(slices.Concat(mboltToken, mboltToken, records)...) }
	txRunDamage(t, formMbolt, "t.mbolt", Options{}, []txDamage{
		{name: "empty", content: "", want: "ends inside the header"},
		{name: "cut header", content: mboltMagic + "\x01", want: "ends inside the header"},
		{name: "other magic", content: "MBLA" + int32Text(1, 8), want: `begins with "MBLA"`},
		{name: "version", content: mboltMagic + int32Text(2, 8), want: "version 2, this program reads 1"},
		{name: "no experts", content: mboltMagic + int32Text(1, 0), want: "the model has 0 experts"},
		{name: "many experts", content: mboltMagic + int32Text(1, 1<<30), want: "1073741824 experts"},
		{name: "no record", content: mboltText(), want: "holds no choice"},
		{name: "layer", content: with([]int32{-1, 2, 1, 0, 1}), want: "of layer -1", tokens: 1},
		{name: "k", content: with([]int32{1, 9, 1}), want: "9 ids a token, want 1 to 8", tokens: 1},
		{name: "other k", content: with([]int32{1, 1, 1, 0}), want: "1 ids a token, those before have 2", tokens: 1},
		{name: "no tokens", content: with([]int32{1, 2, 0}), want: "0 tokens", tokens: 1},
		{name: "many tokens", content: with([]int32{1, 2, 1 << 30}), want: "at most 67108864 ids", tokens: 1},
		{name: "id outside", content: with([]int32{1, 2, 1, 0, 8}), want: "expert id 8 is outside 0 to 7", tokens: 1},
		{name: "id twice", content: with([]int32{1, 2, 1, 3, 3}), want: "expert id 3 is named twice", tokens: 1},
		{name: "ragged", content: with([]int32{1, 2, 2, 0, 1, 2, 3}, []int32{2, 2, 1, 0, 1}, []int32{3, 2, 2, 0, 1, 2, 3}), want: "ragged", tokens: 2},
		{name: "layer missing", content: with(mboltToken[0], mboltToken[2], mboltToken[0], mboltToken[1], mboltToken[2]), want: "no rows of block 2", tokens: 2},
	})
}

func FuzzMbolt(f *testing.F) {
	txFuzz(f, formMbolt, "t.mbolt", Options{}, mboltText(slices.Concat(mboltPrompt, mboltToken)...), mboltText(mboltToken...)[:50])
}
