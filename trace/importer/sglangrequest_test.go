package importer

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

func base64Text(data string) string { return base64.StdEncoding.EncodeToString([]byte(data)) }

// sglangText is an answer of SGLang's /generate, with the fields that matter
// and some that do not.
func sglangText(routed, rest string) string {
	return fmt.Sprintf(`{"text":"a \"routed_experts\" b","output_ids":[1,2],"meta_info":{"id":"x","finish_reason":{"type":"length","length":2},"routed_experts":%q%s,"e2e_latency":0.5}}`, routed, rest)
}

var sglangOptions = Options{Layers: 2, Experts: 4, TopK: 2}

// sglangIDs are four tokens of two layers, top 2.
var sglangIDs = []int32{3, 1, 0, 2, 2, 3, 1, 0, 0, 1, 3, 2, 1, 2, 2, 1}

func TestSGLangRequest(t *testing.T) {
	first := sglangText(base64Text(int32Text(sglangIDs...)), `,"prompt_tokens":3,"completion_tokens":2`)
	second := sglangText(base64Text("\x01\x00\x02\x01"), `,"routed_experts_dtype":"uint8","routed_experts_start_len":5,"prompt_tokens":6,"completion_tokens":1`)
	third := sglangText(base64Text("\x01\x00\x02\x00\x02\x00\x01\x00"), `,"routed_experts_dtype":"uint16","prompt_tokens":null`)
	want := []trace.Activation{
		{Seq: 0, Pos: 0, Phase: trace.Prefill, Token: -1, Experts: []int32{3, 1, 0, 2}},
		{Seq: 0, Pos: 1, Phase: trace.Prefill, Token: -1, Experts: []int32{2, 3, 1, 0}},
		{Seq: 0, Pos: 2, Phase: trace.Prefill, Token: -1, Experts: []int32{0, 1, 3, 2}},
		{Seq: 0, Pos: 3, Phase: trace.Decode, Token: -1, Experts: []int32{1, 2, 2, 1}},
		{Seq: 1, Pos: 5, Phase: trace.Prefill, Token: -1, Experts: []int32{1, 0, 2, 1}},
		{Seq: 2, Pos: 0, Token: -1, Experts: []int32{1, 2, 2, 1}},
	}
	for name, text := range map[string]string{
		"lines":    first + "\n" + second + "\n" + third + "\n",
		"list":     "[" + first + ",\n" + second + "," + third + "]",
		"envelope": `{"choices":[{"index":0,"response":` + first + `}],"more":[[` + second + `],{"x":` + third + `}]}`,
	} {
		i := txOpen(t, formSGLangRequest, sglangOptions, txFile(t, name+".json", text))
		h := i.Header()
		if !h.Shape.Equal(layout.Shape{Layers: 2, Experts: 4, TopK: 2}) || h.Sequences != trace.Yes || h.IDs != trace.IDsUnknown || h.Ranked != trace.Unknown || h.Phase != trace.PhaseUnknown || h.Weights {
			t.Errorf("%s: header is %+v", name, h)
		}
		txWantTokens(t, i, want)
	}
}

func TestSGLangBase64(t *testing.T) {
	o := sglangOptions
	o.Prompt = 1
	i := txOpen(t, formSGLangRequest, o, txFile(t, "a.txt", base64Text(int32Text(sglangIDs[:8]...))+"\n"))
	txWantTokens(t, i, []trace.Activation{
		{Pos: 0, Phase: trace.Prefill, Token: -1, Experts: []int32{3, 1, 0, 2}},
		{Pos: 1, Phase: trace.Decode, Token: -1, Experts: []int32{2, 3, 1, 0}},
	})
	long := txFile(t, "long.txt", base64Text(strings.Repeat(int32Text(sglangIDs...), 4096)))
	if tokens, err := txTokens(txOpen(t, formSGLangRequest, sglangOptions, long)); err != nil || len(tokens) != 4*4096 {
		t.Errorf("got %d tokens, %v; want %d", len(tokens), err, 4*4096)
	}
	// Base64 of something else is not taken for ids.
	for _, text := range []string{base64Text("a picture, or a key, or anything that is no ids"), base64Text(int32Text(1, 2)), "hello", "YWJj"} {
		if i, err := Open([]string{txFile(t, "b.txt", text)}, sglangOptions); err == nil {
			t.Errorf("%q was found as %s", text, i.Form.Name)
		}
	}
}

func TestSGLangRequestDenseLayer(t *testing.T) {
	routed := base64Text(int32Text(0, 0, 2, 1, 0, 0, 3, 1))
	i := txOpen(t, formSGLangRequest, sglangOptions, txFile(t, "a.json", sglangText(routed, "")))
	txWantTokens(t, i, []trace.Activation{{Pos: 0, Token: -1, Experts: []int32{2, 1}}, {Pos: 1, Token: -1, Experts: []int32{3, 1}}})
	if ids := i.Header().Shape.LayerIDs; len(ids) != 1 || ids[0] != 1 {
		t.Errorf("layer ids are %v, want 1", ids)
	}
	txWantNote(t, i, "1 of 2 layers hold nothing but zeros")
}

func TestSGLangRequestDamage(t *testing.T) {
	routed := base64Text(int32Text(sglangIDs...))
	good := sglangText(routed, "") + "\n"
	txRunDamage(t, formSGLangRequest, "a.json", sglangOptions, []txDamage{
		{name: "no shape", content: good, want: "--layers and --experts and --top-k", is: ErrNeedShape, opts: &Options{}},
		{name: "empty", content: " ", want: "ends inside base64 or JSON"},
		{name: "cut JSON", content: good + good[:80], want: "ends inside the JSON of an answer", tokens: 4},
		{name: "no JSON", content: good + "{,}", want: "no JSON", tokens: 4},
		{name: "no answer", content: `{"text":"x"}`, want: "no answer with routed_experts"},
		{name: "null", content: `{"meta_info":{"routed_experts":null}}`, want: "no answer with routed_experts"},
		{name: "no base64", content: good + sglangText("%%%", ""), want: "no base64", tokens: 4},
		{name: "wrong layers", content: good, want: "no multiple of 3 layers x 2 ids x 4 bytes", opts: &Options{Layers: 3, Experts: 4, TopK: 2}},
		{name: "wrong count", content: sglangText(routed, `,"prompt_tokens":7,"completion_tokens":2`), want: "holds 4 tokens of 2 layers x 2 ids, but 7 of the prompt and 2 of the answer"},
		{name: "wrong top-k", content: sglangText(routed, `,"prompt_tokens":3,"completion_tokens":2`), want: "holds 8 tokens of 2 layers x 1 ids", opts: &Options{Layers: 2, Experts: 4, TopK: 1}},
		{name: "start beyond the prompt", content: sglangText(routed, `,"prompt_tokens":3,"completion_tokens":2,"routed_experts_start_len":1`), want: "the first 1 (routed_experts_start_len), are 3"},
		{name: "dtype", content: sglangText(routed, `,"routed_experts_dtype":"int4"`), want: `routed_experts_dtype is "int4"`},
		{name: "count is text", content: sglangText(routed, `,"prompt_tokens":"3"`), want: "prompt_tokens is 3, want a whole number"},
		{name: "count negative", content: sglangText(routed, `,"completion_tokens":-3`), want: "completion_tokens is -3"},
		{name: "start fraction", content: sglangText(routed, `,"routed_experts_start_len":1.5`), want: "routed_experts_start_len is 1.5"},
		{name: "id outside", content: good + sglangText(base64Text(int32Text(3, 1, 0, 4)), ""), want: "expert id 4 is outside 0 to 3", tokens: 4},
		{name: "id twice", content: sglangText(base64Text(int32Text(3, 3, 0, 1)), ""), want: "named twice"},
		{name: "nothing captured", content: sglangText(base64Text(int32Text(0, 0, 0, 0)), ""), want: "nothing was captured"},
		{name: "no tokens", content: sglangText("", ""), want: "no token was routed"},
		{name: "deep", content: strings.Repeat("[", 100), want: "deeper than 64 levels"},
		{name: "no ids", content: "hello", want: "no base64"},
	})
}

// Several files are several sequences.
func TestSGLangRequestFolder(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"a.json", "b.json"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(sglangText(base64Text(int32Text(sglangIDs[:4]...)), "")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	txWantTokens(t, txOpen(t, formSGLangRequest, sglangOptions, folder), []trace.Activation{
		{Seq: 0, Token: -1, Experts: []int32{3, 1, 0, 2}}, {Seq: 1, Token: -1, Experts: []int32{3, 1, 0, 2}},
	})
}

func FuzzSGLangRequest(f *testing.F) {
	routed := base64Text(int32Text(sglangIDs...))
	txFuzz(f, formSGLangRequest, "a.json", sglangOptions, routed, sglangText(routed, `,"prompt_tokens":3,"completion_tokens":2`),
		"["+sglangText(base64Text("\x01\x00\x02\x01"), `,"routed_experts_dtype":"uint8","routed_experts_start_len":5`)+"]")
}
