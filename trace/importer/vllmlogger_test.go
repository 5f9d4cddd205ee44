package importer

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

// logMeta is the meta line of a logger of these layers; the number of experts is
// told only by some.
func logMeta(experts int, layers ...int) string {
	extra := ""
	if experts > 0 {
		extra = fmt.Sprintf(`, "num_experts": %d`, experts)
	}
	list := strings.ReplaceAll(fmt.Sprint(layers), " ", ", ")
	return fmt.Sprintf(`{"type": "meta", "model_id": "m", "vllm_version": "0.11", "torch_version": "2.9", "device": "cuda", "seed": 1, "layers_logged": %s, "top_k": 2%s}`+"\n", list, extra)
}

// logPass is a pass of rows, of which each is named by its first expert.
func logPass(layer int, rows ...int) string {
	s := &strings.Builder{}
	for i, id := range rows {
		fmt.Fprintf(s, `{"type": "route", "req_id": "r1", "token_idx": %d, "layer": %d, "topk_ids": [%d, 0], "topk_weights": [0.5, 0.25]}`+"\n", i, layer, id)
	}
	return s.String()
}

func logHeader(source string, layerIDs ...int) trace.Header {
	return trace.Header{
		Model: "m", Shape: layout.Shape{Layers: 2, Experts: 8, TopK: 2, LayerIDs: layerIDs}, Source: source,
		Weights: true, Ranked: trace.Yes, Sequences: trace.No,
	}
}

func TestLogger(t *testing.T) {
	const weights = " @ 0.5 0.25|0.5 0.25"
	warm := func(layer int) string { return logPass(layer, 7, 7, 7) + logPass(layer, 6, 6) + logPass(layer, 6) }
	passes := []string{"0/0 unknown 1 0|1 0" + weights, "0/1 unknown 2 0|2 0" + weights, "0/2 unknown 3 0|3 0" + weights, "0/3 unknown 4 0|4 0" + weights}
	t.Run("a file a layer", func(t *testing.T) {
		text := func(layer int) string {
			return logMeta(0, layer) + warm(layer) + logPass(layer, 1, 2) + logPass(layer, 3) + logPass(layer, 4)
		}
		sample{
			form: "vllm-moe-logger", files: []named{{"moe_layer12.jsonl", text(12)}, {"moe_layer8.jsonl", text(8)}}, opts: Options{Experts: 8},
			header: logHeader("imported from vllm-moe-logger: moe_layer12.jsonl and 1 more", 8, 12),
			tokens: passes,
			notes:  []string{"The first 3 passes (6 rows) were left out as warm-up", "The log has 3 passes."},
		}.run(t)
	})
	t.Run("layers in one file", func(t *testing.T) {
		sample{
			form:  "vllm-moe-logger",
			files: []named{{"moe.jsonl", logMeta(8, 0, 1) + logPass(0, 1, 2) + logPass(1, 1, 2) + logPass(0, 3, 4) + logPass(1, 3, 4)}},
			// The loggers' rows have the layer; the order of layers in a pass does not matter.
			header: logHeader("imported from vllm-moe-logger: moe.jsonl"),
			tokens: passes,
			notes:  []string{"The log has 2 passes."},
		}.run(t)
	})
	t.Run("no weights", func(t *testing.T) {
		h := logHeader("imported from vllm-moe-logger: moe.jsonl", 3)
		h.Shape.Layers, h.Weights, h.Ranked = 1, false, trace.Unknown
		sample{
			form:   "vllm-moe-logger",
			files:  []named{{"moe.jsonl", logMeta(8, 3, 4) + strings.ReplaceAll(logPass(3, 1, 2), `, "topk_weights": [0.5, 0.25]`, "")}},
			header: h, tokens: []string{"0/0 unknown 1 0", "0/1 unknown 2 0"},
			notes: []string{"Layer 4 should have been logged", "The log has 1 passes."},
		}.run(t)
	})
}

// The neutral file has the passes of which it is known whose rows they are: the
// first prompt, its first decoded token, and the 82 passes of all 25 sequences.
// The form does not tell that, so only the rows are compared.
func TestLoggerShared(t *testing.T) {
	const folder = "raw/qwen1.5-moe-vllm-logger/moe_layer"
	imp := sharedStream(t, Options{Experts: 60}, folder+"8.jsonl.gz", folder+"12.jsonl.gz", folder+"18.jsonl.gz", folder+"23.jsonl.gz")
	want := sharedStream(t, Options{}, "qwen1.5-moe-a2.7b-chat-4layers-batch25.jsonl.gz")
	if got, want := imp.Header().Shape, want.Header().Shape; !slices.Equal(got.LayerIDs, want.LayerIDs) || got.TopK != want.TopK {
		t.Fatalf("shape: got %+v, want %+v", got, want)
	}
	const firstDecode, batches = 65, 65 + 1406
	var a, b trace.Activation
	rows, compared := 0, 0
	for ; ; rows++ {
		if err := imp.Next(&a); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if rows > firstDecode && rows < batches || rows >= batches+82*25 {
			continue
		}
		if err := want.Next(&b); err != nil {
			t.Fatalf("row %d: the neutral file has none: %v", rows, err)
		}
		for i, w := range a.Weights {
			a.Weights[i] = fiveDigits(w)
		}
		if !slices.Equal(a.Experts, b.Experts) || !slices.Equal(a.Weights, b.Weights) {
			t.Fatalf("row %d: got %v, want %v", rows, a, b)
		}
		compared++
	}
	if err := want.Next(&b); !errors.Is(err, io.EOF) || rows != 12805-8192-256 || compared != 2116 {
		t.Errorf("got %d rows, %d of them compared, then %v; want 4357, 2116 and the end", rows, compared, err)
	}
	if notes := imp.Notes(); len(notes) != 2 || !strings.Contains(notes[0], "first 2 passes (8448 rows)") {
		t.Errorf("notes: got %q, want the warm-up's passes", notes)
	}
}

func TestLoggerFolder(t *testing.T) {
	imp := sharedStream(t, Options{Experts: 60}, "raw/qwen1.5-moe-vllm-logger")
	if tokens, err := readOut(imp); err != nil || len(tokens) != 4357 || imp.Header().Shape.Layers != 5 {
		t.Errorf("got %d tokens of %d layers, %v; want 4357 of 5", len(tokens), imp.Header().Shape.Layers, err)
	}
}

func TestLoggerDamaged(t *testing.T) {
	one := func(text string) []named { return []named{{"p.jsonl", text}} }
	rest := func(text string) []named { return one(logMeta(8, 0) + logPass(0, 1, 2) + text) }
	const weights = " @ 0.5 0.25"
	told := []string{"0/0 unknown 1 0" + weights, "0/1 unknown 2 0" + weights}
	pair := []string{"0/0 unknown 1 0|1 0 @ 0.5 0.25|0.5 0.25"}
	refuses(t, "vllm-moe-logger", Options{}, []brokenCase{
		{name: "empty", files: one(""), want: "holds no route line"},
		{name: "no routes", files: one(logMeta(8, 0)), want: "holds no route line"},
		{name: "no JSON", files: one("x"), want: "line 1: the line is no meta or route line"},
		{name: "no meta", files: one(logPass(0, 1)), want: "line 1: a route line stands before the meta line"},
		{name: "no top-k", files: one(strings.Replace(logMeta(8, 0), `"top_k": 2`, `"top_k": 0`, 1) + logPass(0, 1)), want: "give --top-k", is: ErrNeedShape},
		{name: "type", files: rest(`{"type":"x"}`), tokens: told, want: `line 4: the type is "x"`},
		{name: "second meta", files: rest(logMeta(8, 0)), tokens: told, want: "line 4: a second meta line"},
		{name: "no layer", files: rest(`{"type":"route","token_idx":0}`), tokens: told, want: "line 4: the line names no layer"},
		{name: "token_idx", files: rest(strings.ReplaceAll(logPass(0, 1), `_idx": 0`, `_idx": 3`)), tokens: told, want: "line 4: layer 0: token_idx is 3, want 2"},
		{name: "first token_idx", files: one(logMeta(8, 0) + strings.ReplaceAll(logPass(0, 1), `_idx": 0`, `_idx": 1`)), want: "line 2: layer 0: token_idx is 1, want 0"},
		{name: "id outside", files: rest(logPass(0, 8)), tokens: told, want: "line 4: layer 0: expert id 8 is outside 0 to 7"},
		{name: "wide row", files: rest(strings.ReplaceAll(logPass(0, 1), "[1, 0]", "[1, 0, 2]")), tokens: told, want: "line 4: layer 0: the row has 3 expert ids"},
		{name: "weights", files: rest(strings.ReplaceAll(logPass(0, 1), "[0.5, 0.25]", "[0.5]")), tokens: told, want: "line 4: layer 0: the row has 1 weights for 2 experts"},
		{name: "cut", files: rest(logPass(0, 3)[:60]), tokens: told, want: "line 4: the line is no meta or route line: unexpected end"},
		{name: "cut before a layer", files: one(logMeta(8, 0, 1) + logPass(0, 1, 2) + "{"), want: "line 4: the line is no meta or route line"},
		{name: "layer twice", files: []named{{"a.jsonl", logMeta(8, 0) + logPass(0, 1)}, {"b.jsonl", logMeta(8, 0) + logPass(0, 1)}}, want: "line 2: layer 0 is in a.jsonl too"},
		{name: "other model", files: []named{{"a.jsonl", logMeta(8, 0) + logPass(0, 1)}, {"b.jsonl", strings.Replace(logMeta(8, 1), `"m"`, `"n"`, 1) + logPass(1, 1)}}, want: `line 1: the run is of model "n"`},
		{name: "ragged pass", files: []named{{"a.jsonl", logMeta(8, 0) + logPass(0, 1) + logPass(0, 2, 3)}, {"b.jsonl", logMeta(8, 1) + logPass(1, 1) + logPass(1, 2)}},
			tokens: pair, want: "ragged: layer 1 has 1 rows in pass 1, but layer 0 has 2"},
		{name: "fewer passes", files: []named{{"a.jsonl", logMeta(8, 0) + logPass(0, 1) + logPass(0, 2)}, {"b.jsonl", logMeta(8, 1) + logPass(1, 1)}},
			tokens: pair, want: "ragged: layer 1 has 1 passes, but layer 0 has 2"},
	})
}

func FuzzLogger(f *testing.F) {
	fuzzForm(f, "vllm-moe-logger", Options{}, logMeta(8, 0, 1)+logPass(0, 1, 1)+logPass(1, 2, 2)+logPass(0, 3, 4)+logPass(1, 3, 4), logMeta(8, 3)+logPass(3, 1))
}
