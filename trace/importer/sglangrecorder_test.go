package importer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"outrider/trace"
	"outrider/trace/importer/internal/torchfile/torchwrite"
)

// savedText is what torch.save writes of a value.
func savedText(t testing.TB, v any) string {
	t.Helper()
	b, err := torchwrite.Save(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func anyList(ints ...int) []any {
	list := []any{}
	for _, n := range ints {
		list = append(list, n)
	}
	return list
}

// topkTensor is [layers, tokens, 4] filled up with -1; rows are layer by layer.
func topkTensor(layers, tokens int, rows ...[]int32) *torchwrite.Tensor {
	var ids []int32
	for _, row := range rows {
		ids = append(append(ids, row...), slices.Repeat([]int32{-1}, 4-len(row))...)
	}
	return torchwrite.Int32s([]int{layers, tokens, 4}, ids...)
}

// sglangRecord is a pass of mode per_token: first tokens, positions, lengths
// and mode.
func sglangRecord(tokens, positions []any, extend any, mode any, topk any) torchwrite.Dict {
	return torchwrite.Dict{
		{"forward_pass_id", 7}, {"rank", 0}, {"gatherer_key", "primary"}, {"input_ids", tokens}, {"positions", positions},
		{"extend_seq_lens", extend}, {"forward_mode", mode}, {"topk_ids_of_layer", topk}, {"misc_objects", []any{}},
		{"global_physical_count", torchwrite.Int32s([]int{2, 4}, 0, 0, 0, 0, 0, 0, 0, 0)},
	}
}

func recorderDump(place any, records ...any) torchwrite.Dict {
	return torchwrite.Dict{{"records", records}, {"last_physical_to_logical_map", place}}
}

// twoRequests is a pass of two prompts, of 2 tokens and 1, and one that decodes
// both. The first layer is dense.
func twoRequests() []any {
	return []any{
		sglangRecord(anyList(50, 51, 60), anyList(0, 1, 0), anyList(2, 1), 1,
			topkTensor(2, 3, nil, nil, nil, []int32{3, 1}, []int32{0, 2}, []int32{1, 0})),
		sglangRecord(anyList(52, 61), anyList(2, 1), nil, 2, topkTensor(2, 2, nil, nil, []int32{2, 3}, []int32{1, 2})),
	}
}

func identity() *torchwrite.Tensor { return torchwrite.Int32s([]int{2, 4}, 0, 1, 2, 3, 0, 1, 2, 3) }

func TestSGLangRecorder(t *testing.T) {
	i := txOpen(t, formSGLangRecorder, Options{Model: "m"}, txFile(t, "d.pt", savedText(t, recorderDump(identity(), twoRequests()...))))
	h := i.Header()
	if s := h.Shape; s.Layers != 1 || s.Experts != 4 || s.TopK != 2 || !slices.Equal(s.LayerIDs, []int{1}) {
		t.Errorf("shape is %+v", s)
	}
	if h.IDs != trace.IDsLogical || h.Sequences != trace.Yes || !h.Tokens || h.Weights || h.Ranked != trace.Unknown || h.Phase != trace.PhaseUnknown {
		t.Errorf("header is %+v", h)
	}
	txWantTokens(t, i, []trace.Activation{
		{Seq: 0, Pos: 0, Phase: trace.Prefill, Token: 50, Experts: []int32{3, 1}},
		{Seq: 0, Pos: 1, Phase: trace.Prefill, Token: 51, Experts: []int32{0, 2}},
		{Seq: 1, Pos: 0, Phase: trace.Prefill, Token: 60, Experts: []int32{1, 0}},
		{Seq: 0, Pos: 2, Phase: trace.Decode, Token: 52, Experts: []int32{2, 3}},
		{Seq: 1, Pos: 1, Phase: trace.Decode, Token: 61, Experts: []int32{1, 2}},
	})
	txWantNote(t, i, "sequences were told by positions")
	txWantNote(t, i, "1 of 2 layers have no ids")
}

// Slots are turned into experts: in layer 1, slot 3 is a copy of expert 0.
func TestSGLangRecorderMap(t *testing.T) {
	place := torchwrite.Int32s([]int{2, 4}, 0, 1, 2, 0, 2, 1, 1, 0)
	records := twoRequests()
	i := txOpen(t, formSGLangRecorder, Options{}, txFile(t, "d.pt", savedText(t, recorderDump(place, records[0]))))
	if h := i.Header(); h.IDs != trace.IDsLogical || h.Shape.Experts != 3 {
		t.Errorf("header is %+v, want 3 logical experts", h)
	}
	tokens, err := txTokens(i)
	if err != nil || len(tokens) != 3 || !slices.Equal(tokens[0].Experts, []int32{0, 1}) || !slices.Equal(tokens[1].Experts, []int32{2, 1}) {
		t.Errorf("got %v, %v; want the slots' experts", tokens, err)
	}
	txWantNote(t, i, "turned into those of the experts")

	// Slots 1 and 2 both hold expert 1, and the last token uses both: the map is not that pass's.
	i = txOpen(t, formSGLangRecorder, Options{}, txFile(t, "d.pt", savedText(t, recorderDump(place, records[0],
		sglangRecord(anyList(1), anyList(0), anyList(1), 1, topkTensor(2, 1, nil, []int32{1, 2}))))))
	if h := i.Header(); h.IDs != trace.IDsPhysical || h.Shape.Experts != 4 {
		t.Errorf("header is %+v, want 4 slots", h)
	}
	if tokens, err := txTokens(i); err != nil || !slices.Equal(tokens[0].Experts, []int32{3, 1}) {
		t.Errorf("got %v, %v; want slots", tokens, err)
	}
	txWantNote(t, i, "experts were moved during the recording")

	i = txOpen(t, formSGLangRecorder, Options{}, txFile(t, "d.pt", savedText(t, recorderDump(nil, records...))))
	if h := i.Header(); h.IDs != trace.IDsPhysical || h.Shape.Experts != 4 {
		t.Errorf("header is %+v, want slots", h)
	}
	txWantNote(t, i, "has no last_physical_to_logical_map")
}

func TestSGLangRecorderPhases(t *testing.T) {
	topk := topkTensor(2, 1, []int32{0, 1}, []int32{1, 0})
	for _, c := range []struct {
		extend, mode any
		want         trace.Phase
	}{
		{anyList(1), 1, trace.Prefill}, {nil, 2, trace.Decode}, {anyList(1), 3, trace.PhaseUnknown},
		{nil, 1, trace.PhaseUnknown}, {anyList(1), 2, trace.PhaseUnknown}, {nil, 5, trace.PhaseUnknown}, {nil, nil, trace.PhaseUnknown},
	} {
		i := txOpen(t, formSGLangRecorder, Options{}, txFile(t, "d.pt", savedText(t, recorderDump(identity(), sglangRecord(anyList(9), anyList(0), c.extend, c.mode, topk)))))
		if tokens, err := txTokens(i); err != nil || len(tokens) != 1 || tokens[0].Phase != c.want {
			t.Errorf("mode %v with lengths %v: got %v, %v; want %v", c.mode, c.extend, tokens, err, c.want)
		}
	}
}

// What positions tell of sequences, pass by pass: "e" extends, "d" decodes, as
// start+length; the answer is each part's sequence, "" where it is unclear.
func TestPassLinks(t *testing.T) {
	for _, c := range []struct{ name, passes, want string }{
		{"one prompt", "e0+3 d3 d4", "0 0 0"},
		{"chunked prompt", "e0+3 e3+2 d5", "0 0 0"},
		{"a prompt in between", "e0+3 d3 e0+2 d4,2 d5,3", "0 0 1 0,1 0,1"},
		{"one ends", "e0+3,0+2 d3,2 d3 d4", "0,1 0,1 1 1"},
		{"next goes where the last ended", "e0+2 d2 d3 e0+4 d4", "0 0 0 1 "},
		{"the last has ended when the next decodes", "e0+2 d2 d3 e0+1 d1 d2 d3 d4", "0 0 0 1 1 1 1 1"},
		{"equal lengths", "e0+2,0+2 d2,2", "0,1 "},
		{"cached prompt", "e5+3", ""},
		{"decoded before the recording", "d7", ""},
		{"cached prompt where a decoded one ended", "e0+2 d2 e3+2", "0 0 "},
		{"mixed pass", "e0+2 m2+1", "0 "},
		{"nothing", "e d", " "},
	} {
		k := newPassLinks()
		var got []string
		for _, text := range strings.Fields(c.passes) {
			owners := k.pass(linkPass(text))
			if k.unclear {
				got = append(got, "")
				break
			}
			last, list := int64(-1), []string{}
			for _, o := range owners {
				if o != last {
					list = append(list, string('0'+rune(o)))
				}
				last = o
			}
			got = append(got, strings.Join(list, ","))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %s gives %q, want %q", c.name, c.passes, text, c.want)
		}
	}
}

func linkPass(text string) *sglangPass {
	p := &sglangPass{phase: map[byte]trace.Phase{'e': trace.Prefill, 'd': trace.Decode}[text[0]], positions: []int64{}}
	if text[0] == 'e' {
		p.extend = []int64{}
	}
	for _, part := range strings.Split(text[1:], ",") {
		if part == "" {
			continue
		}
		start, length := int64(part[0]-'0'), int64(1)
		if len(part) > 1 {
			length = int64(part[2] - '0')
		}
		if p.extend != nil {
			p.extend = append(p.extend, length)
		}
		for i := range length {
			p.positions = append(p.positions, start+i)
			p.tokens = append(p.tokens, 1)
		}
	}
	return p
}

func TestSGLangRecorderDamage(t *testing.T) {
	topk := topkTensor(2, 1, []int32{0, 1}, []int32{1, 0})
	good := sglangRecord(anyList(9), anyList(0), anyList(1), 1, topk)
	dump := func(v any) string { return savedText(t, v) }
	record := func(key string, value any) string {
		r := slices.Clone(good)
		for i := range r {
			if r[i][0] == key {
				r[i][1] = value
			}
		}
		return dump(recorderDump(identity(), good, r))
	}
	evil, err := torchwrite.Archive([]byte("\x80\x02}X\x07\x00\x00\x00recordscposix\nsystem\n(X\x02\x00\x00\x00lstRs."))
	if err != nil {
		t.Fatal(err)
	}
	whole := dump(recorderDump(identity(), good))
	txRunDamage(t, formSGLangRecorder, "d.pt", Options{}, []txDamage{
		{name: "empty", content: "", want: "not a file of torch.save"},
		{name: "cut", content: whole[:len(whole)-40], want: "not a file of torch.save"},
		{name: "old form", content: "\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", want: "save it again with torch.save"},
		{name: "code", content: string(evil), want: `uses "posix.system"`},
		{name: "a list", content: dump([]any{}), want: "the file holds a list, want the dict"},
		{name: "no records", content: dump(torchwrite.Dict{{"x", 1}}), want: "records is None, want a list"},
		{name: "empty records", content: dump(recorderDump(nil)), want: "holds no pass"},
		{name: "record no dict", content: dump(recorderDump(nil, 1)), want: "record 0 is an int"},
		{name: "no tokens", content: record("input_ids", nil), want: "pass 1: trace: "},
		{name: "tokens of text", content: record("input_ids", []any{"a"}), want: "input_ids is no list of whole numbers"},
		{name: "positions", content: record("positions", anyList(1, 2)), want: "2 positions of 1 tokens"},
		{name: "no ids", content: record("topk_ids_of_layer", nil), want: "topk_ids_of_layer is None, want a tensor of 3 dimensions"},
		{name: "ids in two dimensions", content: record("topk_ids_of_layer", torchwrite.Int32s([]int{1, 1}, 1)), want: "is a tensor, want a tensor of 3"},
		{name: "ids of other tokens", content: record("topk_ids_of_layer", topkTensor(2, 2, nil, nil, nil, nil)), want: "shape [2 2 4] for 1 tokens"},
		{name: "other layers", content: record("topk_ids_of_layer", topkTensor(1, 1, []int32{1})), want: "1 layers, but 2 before"},
		{name: "fractions", content: record("topk_ids_of_layer", &torchwrite.Tensor{Class: "FloatStorage", Shape: []int{2, 1, 1}, Data: make([]byte, 8), Numel: 2}), want: "a tensor of float32, want integers"},
		{name: "nothing routed", content: dump(recorderDump(identity(), sglangRecord(anyList(9), anyList(0), nil, 2, topkTensor(2, 1, nil, nil)))), want: "no token was routed"},
		{name: "map of texts", content: dump(recorderDump("x", good)), want: "last_physical_to_logical_map is a str"},
		{name: "map of other layers", content: dump(recorderDump(torchwrite.Int32s([]int{1, 4}, 0, 1, 2, 3), good)), want: "2 layers, but 2 before or in last_physical"},
		{name: "map outside", content: dump(recorderDump(torchwrite.Int32s([]int{2, 2}, 0, 1, 2, 0), good)), want: "layer 1, slot 0 holds expert 2, want one of 0 to 1"},
		{name: "slot outside the map", content: record("topk_ids_of_layer", topkTensor(2, 1, []int32{0, 1}, []int32{1, 4})), want: "id 4 is outside the slots", tokens: 1},
		{name: "fill first", content: record("topk_ids_of_layer", topkTensor(2, 1, []int32{-1, 1}, []int32{1, 0})), want: "id -1 is outside", tokens: 1},
		{name: "id twice", content: record("topk_ids_of_layer", topkTensor(2, 1, []int32{1, 1}, []int32{1, 0})), want: "named twice", tokens: 1},
		{name: "other top-k", content: whole, want: "top-k 2, but 3 was given", is: errAny, opts: &Options{TopK: 3}},
	})
}

func FuzzSGLangRecorder(f *testing.F) {
	txFuzz(f, formSGLangRecorder, "d.pt", Options{}, savedText(f, recorderDump(identity(), twoRequests()...)))
}

// FuzzSGLangPickle changes the pickle inside a valid archive.
func FuzzSGLangPickle(f *testing.F) {
	code, storages, err := torchwrite.Pickle(recorderDump(identity(), twoRequests()...))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(code)
	path := filepath.Join(f.TempDir(), "d.pt")
	f.Fuzz(func(t *testing.T, code []byte) {
		b, err := torchwrite.Archive(code, storages...)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, form := range []string{formSGLangRecorder, formSGLangCounts} {
			i, err := Open([]string{path}, Options{From: form})
			if err != nil {
				continue
			}
			if i.Histogram == nil {
				_, _ = txTokens(i) // checked by the emitter
			}
			_ = i.Close()
		}
	})
}
