package importer

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

// vllmSample is three tokens of two layers, top 2.
func vllmSample() string {
	return npyText("<i4", []int{3, 2, 2}, int32Text(3, 1, 0, 2, 2, 3, 1, 0, 0, 1, 3, 2))
}

func TestVLLMNpy(t *testing.T) {
	second := npyText("|u1", []int{1, 2, 2}, "\x01\x00\x02\x01")
	i := txOpen(t, formVLLMNpy, Options{Experts: 4, Model: "m", Prompt: 2}, txFile(t, "a.npy", vllmSample()), txFile(t, "b.npy", second))
	want := trace.Header{
		Model: "m", Shape: layout.Shape{Layers: 2, Experts: 4, TopK: 2}, Sequences: trace.Yes, Source: "imported from vllm-npy: a.npy and 1 more",
	}
	if h := i.Header(); h.Model != want.Model || !h.Shape.Equal(want.Shape) || h.Source != want.Source || h.Sequences != want.Sequences ||
		h.IDs != trace.IDsUnknown || h.Ranked != trace.Unknown || h.Weights || h.Tokens || h.Phase != trace.PhaseUnknown {
		t.Errorf("header is %+v, want %+v", h, want)
	}
	txWantTokens(t, i, []trace.Activation{
		{Seq: 0, Pos: 0, Phase: trace.Prefill, Token: -1, Experts: []int32{3, 1, 0, 2}},
		{Seq: 0, Pos: 1, Phase: trace.Prefill, Token: -1, Experts: []int32{2, 3, 1, 0}},
		{Seq: 0, Pos: 2, Phase: trace.Decode, Token: -1, Experts: []int32{0, 1, 3, 2}},
		{Seq: 1, Pos: 0, Phase: trace.Prefill, Token: -1, Experts: []int32{1, 0, 2, 1}},
	})
}

// A dense layer is zeros for all tokens; a token that was not captured, too.
func TestVLLMNpyZeros(t *testing.T) {
	data := int32Text(0, 0, 3, 1, 0, 2, 0, 0, 0, 0, 2, 1)
	path := txFile(t, "a.npy", npyText("<i4", []int{2, 3, 2}, data))
	i := txOpen(t, formVLLMNpy, Options{Experts: 4}, path)
	if h := i.Header(); h.Shape.Layers != 2 || !slices.Equal(h.Shape.LayerIDs, []int{1, 2}) {
		t.Errorf("shape is %+v, want layers 1 and 2", h.Shape)
	}
	txWantTokens(t, i, []trace.Activation{
		{Pos: 0, Token: -1, Experts: []int32{3, 1, 0, 2}},
		{Pos: 1, Token: -1, Experts: []int32{-1, -1, 2, 1}},
	})
	txWantNote(t, i, "1 of 3 layers hold nothing but zeros")
	txWantNote(t, i, "1 tokens have layers of nothing but zeros")
	numbered := txOpen(t, formVLLMNpy, Options{Experts: 4, LayerIDs: []int{4, 6, 8}}, path)
	if h := numbered.Header(); !slices.Equal(h.Shape.LayerIDs, []int{6, 8}) {
		t.Errorf("layer ids are %v, want 6 and 8", h.Shape.LayerIDs)
	}
}

// The array does not tell how many experts there are: at least as many as it names.
func TestVLLMNpyLeastExperts(t *testing.T) {
	i := txOpen(t, formVLLMNpy, Options{}, txFile(t, "a.npy", vllmSample()))
	if n := i.Header().Shape.Experts; n != 4 {
		t.Errorf("got %d experts, want 4", n)
	}
	if tokens, err := txTokens(i); err != nil || len(tokens) != 3 {
		t.Errorf("got %d tokens, %v; want 3", len(tokens), err)
	}
}

// With one expert a token, a row of zero is a choice of expert 0.
func TestVLLMNpyTopOne(t *testing.T) {
	i := txOpen(t, formVLLMNpy, Options{Experts: 4}, txFile(t, "a.npy", npyText("<i8", []int{2, 2, 1},
		string(binary.LittleEndian.AppendUint64(nil, 0))+string(binary.LittleEndian.AppendUint64(nil, 3))+strings.Repeat("\x00", 16))))
	txWantTokens(t, i, []trace.Activation{{Pos: 0, Token: -1, Experts: []int32{0, 3}}, {Pos: 1, Token: -1, Experts: []int32{0, 0}}})
}

func TestVLLMNpyDamage(t *testing.T) {
	ok := vllmSample()
	txRunDamage(t, formVLLMNpy, "a.npy", Options{Experts: 4}, []txDamage{
		{name: "other top-k", content: ok, want: "top-k 2, but 4 was given", is: errAny, opts: &Options{Experts: 4, TopK: 4}},
		{name: "too few experts", content: ok, want: "expert id 3 is outside 0 to 2", opts: &Options{Experts: 3}},
		{name: "id outside", content: npyText("<i4", []int{2, 1, 2}, int32Text(1, 0, 1, 4)), want: "expert id 4 is outside", tokens: 1},
		{name: "id twice", content: npyText("<i4", []int{2, 1, 2}, int32Text(1, 0, 2, 2)), want: "named twice", tokens: 1},
		{name: "id too large", content: npyText("<i8", []int{1, 1, 1}, "\x00\x00\x00\x00\x01\x00\x00\x00"), want: "expert id 2147483647 is outside"},
		{name: "cut", content: ok[:len(ok)-3], want: "the file ends inside the array, which is int32 [3 2 2]", tokens: 2},
		{name: "cut header", content: ok[:20], want: "ends inside the header"},
		{name: "bytes behind", content: ok + "x", want: "more bytes follow the array", tokens: 3},
		{name: "two dimensions", content: npyText("<i4", []int{1, 2}, int32Text(1, 2)), want: "int32 [1 2], want whole numbers [tokens, layers, k]"},
		{name: "fractions", content: npyText("<f8", []int{1, 1, 1}, float64Text(1)), want: "float64 [1 1 1], want whole numbers"},
		{name: "no layers", content: npyText("<i4", []int{1, 0, 2}, ""), want: "int32 [1 0 2], want [tokens, layers, k]"},
		{name: "no tokens", content: npyText("<i4", []int{0, 1, 2}, ""), want: "no token was routed"},
		{name: "nothing captured", content: npyText("<i4", []int{2, 1, 2}, int32Text(0, 0, 0, 0)), want: "nothing but zeros"},
		{name: "Fortran order", content: npyDictText("{'descr': '<i4', 'fortran_order': True, 'shape': (1, 1, 1), }", int32Text(1)), want: "numpy.ascontiguousarray"},
		{name: "more tokens than bytes", content: npyText("<i4", []int{1 << 50, 1, 1}, int32Text(1)), want: "ends inside the array", tokens: 1},
		{name: "more layers than any model", content: npyText("<i4", []int{1, 5000, 1}, ""), want: "want [tokens, layers, k]"},
		{name: "more ids than any token", content: npyText("<i4", []int{1, 4096, 1024}, ""), want: "a token may have", is: errAny, opts: &Options{Experts: 2000}},
	})
	_, err := Open([]string{txFile(t, "a.npy", ok), txFile(t, "b.npy", npyText("<i4", []int{1, 1, 2}, int32Text(0, 1)))}, Options{Experts: 4})
	if err != nil {
		t.Fatal(err) // the second file is met later
	}
	i := txOpen(t, formVLLMNpy, Options{Experts: 4}, txFile(t, "a.npy", ok), txFile(t, "b.npy", npyText("<i4", []int{1, 1, 2}, int32Text(0, 1))))
	if tokens, err := txTokens(i); err == nil || !strings.Contains(err.Error(), "b.npy") || !strings.Contains(err.Error(), "but the first file's has 2 layers of 2 ids") || len(tokens) != 3 {
		t.Errorf("got %d tokens and %v, want 3 and the second file's shape", len(tokens), err)
	}
}

// Counts are no ids, and ids no counts.
func TestNpySniff(t *testing.T) {
	for name, c := range map[string]struct {
		text, form string
		experts    int
	}{
		"counts of steps":     {npyText("<i4", []int{1, 2, 4}, int32Text(9, 9, 1, 0, 4, 4, 4, 4)), "", 4},
		"large counts":        {npyText("<i4", []int{1, 1, 3}, int32Text(70000, 2, 3)), "", 4},
		"ids":                 {vllmSample(), formVLLMNpy, 4},
		"matrices of one":     {npyText("<f4", []int{1, 1, 1}, "\x00\x00\x80\x3f"), formCountsNpy, 0},
		"counts of one table": {npyText("<i8", []int{1, 1}, "\x01\x00\x00\x00\x00\x00\x00\x00"), formCountsNpy, 0},
	} {
		i, err := Open([]string{txFile(t, "a.npy", c.text)}, Options{Experts: c.experts})
		switch {
		case err != nil && c.form != "":
			t.Errorf("%s: %v", name, err)
		case err == nil && i.Form.Name != c.form:
			t.Errorf("%s: found as %s, want %q", name, i.Form.Name, c.form)
		}
	}
}

func FuzzVLLMNpy(f *testing.F) {
	txFuzz(f, formVLLMNpy, "a.npy", Options{Experts: 4}, vllmSample(), npyText("|u1", []int{2, 2, 1}, "\x01\x00\x02\x01"),
		npyText("<i4", []int{1, 2, 2}, string(bytes.Repeat([]byte{0}, 8))+int32Text(1, 2)))
}
