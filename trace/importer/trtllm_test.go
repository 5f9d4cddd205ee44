package importer

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider/trace"
)

// trtTensor is a tensor of int32 for a safetensors file.
type trtTensor struct {
	name   string
	shape  []int
	values []int32
}

// safetensorsText is a file with tensors of int32, in this order.
func safetensorsText(tensors ...trtTensor) string {
	var head, data strings.Builder
	head.WriteString(`{"__metadata__":{"format":"pt"}`)
	for _, t := range tensors {
		start := data.Len()
		data.WriteString(int32Text(t.values...))
		shape, _ := json.Marshal(t.shape)
		fmt.Fprintf(&head, `,%q:{"dtype":"I32","shape":%s,"data_offsets":[%d,%d]}`, t.name, shape, start, data.Len())
	}
	head.WriteString("}")
	return string(binary.LittleEndian.AppendUint64(nil, uint64(head.Len()))) + head.String() + data.String()
}

// trtFolder writes the files of a statistic: pairs of name and content.
func trtFolder(t testing.TB, files ...string) string {
	t.Helper()
	folder := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		if err := os.WriteFile(filepath.Join(folder, files[i]), []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

const trtMetaText = `{"num_experts": 4, "num_experts_per_token": 2}`

func trtCounts(key string, values ...int32) trtTensor {
	return trtTensor{key, []int{len(values)}, values}
}

func trtIDs(key string, values ...int32) trtTensor {
	return trtTensor{key, []int{len(values) / 2, 2}, values}
}

func TestTRTCounts(t *testing.T) {
	folder := trtFolder(t, trtMeta, trtMetaText,
		"rank0.safetensors", safetensorsText(trtCounts("100_3", 1, 2, 3, 0), trtCounts("100_4", 0, 0, 3, 3), trtCounts("101_3", 6, 0, 0, 0), trtCounts("101_4", 0, 6, 0, 0)),
		"rank1.safetensors", safetensorsText(trtCounts("100_3", 1, 1, 0, 0), trtCounts("100_4", 2, 0, 0, 0)),
		"cooccurrence_rank0.safetensors", "not looked at")
	i := txOpen(t, formTRTCounts, Options{}, folder)
	want := &trace.Histogram{
		Layers: 2, LayerIDs: []int{3, 4}, Experts: 4, TopK: 2, Unit: "tokens", Source: i.Histogram.Source,
		Tables: []trace.Counts{
			{Label: "iteration 100", Counts: [][]float64{{2, 3, 3, 0}, {2, 0, 3, 3}}},
			{Label: "iteration 101", Counts: [][]float64{{6, 0, 0, 0}, {0, 6, 0, 0}}},
		},
	}
	if d := cmp.Diff(want, i.Histogram); d != "" {
		t.Errorf("histogram (-want +got):\n%s", d)
	}
	txWantNote(t, i, "the counts of 2 ranks were summed up")
}

func TestTRTCountsSummed(t *testing.T) {
	var tensors []trtTensor
	for n := range maxSteps + 1 {
		tensors = append(tensors, trtCounts(fmt.Sprintf("%d_0", n), 1, 0, 0, 1))
	}
	i := txOpen(t, formTRTCounts, Options{Experts: 4, TopK: 2}, trtFolder(t, "rank0.safetensors", safetensorsText(tensors...)))
	if h := i.Histogram; len(h.Tables) != 1 || !slices.Equal(h.Tables[0].Counts[0], []float64{4097, 0, 0, 4097}) {
		t.Errorf("got %d tables, want one of all", len(h.Tables))
	}
	txWantNote(t, i, "4097 iterations were summed up")
}

func TestTRTRaw(t *testing.T) {
	first := safetensorsText(trtIDs("7_0", 0, 1, 2, 3), trtIDs("7_1", 3, 2, 1, 0), trtIDs("8_0", 1, 3), trtIDs("8_1", 0, 2))
	second := safetensorsText(trtIDs("7_0", 2, 0), trtIDs("7_1", 1, 3))
	want := []trace.Activation{
		{Seq: 0, Pos: 0, Token: -1, Experts: []int32{0, 1, 3, 2}}, {Seq: 0, Pos: 1, Token: -1, Experts: []int32{2, 3, 1, 0}},
		{Seq: 0, Pos: 2, Token: -1, Experts: []int32{2, 0, 1, 3}}, {Seq: 1, Pos: 0, Token: -1, Experts: []int32{1, 3, 0, 2}},
	}
	for _, name := range []string{"rank%d_raw.safetensors", "token_selected_experts_rank%d.safetensors"} {
		folder := trtFolder(t, trtMeta, trtMetaText, fmt.Sprintf(name, 0), first, fmt.Sprintf(name, 1), second, "rank0.safetensors", "not looked at")
		i := txOpen(t, formTRTRaw, Options{Model: "m"}, folder)
		h := i.Header()
		if s := h.Shape; s.Layers != 2 || s.Experts != 4 || s.TopK != 2 || s.LayerIDs != nil || h.Sequences != trace.No || h.IDs != trace.IDsUnknown || h.Ranked != trace.Unknown {
			t.Errorf("header is %+v", h)
		}
		txWantTokens(t, i, want)
		txWantNote(t, i, "the tokens of 2 ranks follow one another")
	}
	// One file is enough where the shape is told otherwise.
	path := filepath.Join(trtFolder(t, "rank5_raw.safetensors", second), "rank5_raw.safetensors")
	txWantTokens(t, txOpen(t, formTRTRaw, Options{Experts: 4, TopK: 2}, path), []trace.Activation{{Token: -1, Experts: []int32{2, 0, 1, 3}}})
}

func TestTRTDamage(t *testing.T) {
	good := safetensorsText(trtIDs("7_0", 0, 1), trtIDs("7_1", 3, 2))
	counts := safetensorsText(trtCounts("7_0", 1, 2, 3, 4))
	for _, c := range []struct {
		name, form string
		files      []string
		want       string
		o          Options
	}{
		{"no rank", formTRTRaw, []string{trtMeta, trtMetaText}, "no file is named as", Options{}},
		{"meta is no JSON", formTRTRaw, []string{trtMeta, "{", "rank0_raw.safetensors", good}, "meta_info.json: damaged", Options{}},
		{"meta negative", formTRTRaw, []string{trtMeta, `{"num_experts":-1}`, "rank0_raw.safetensors", good}, "-1 experts", Options{}},
		{"meta null", formTRTRaw, []string{trtMeta, "null", "rank0_raw.safetensors", good}, "give --experts and --top-k", Options{}},
		{"no safetensors", formTRTRaw, []string{trtMeta, trtMetaText, "rank0_raw.safetensors", "xxxxxxxxxxxx"}, "not a safetensors file", Options{}},
		{"cut", formTRTRaw, []string{trtMeta, trtMetaText, "rank0_raw.safetensors", good[:len(good)-2]}, "file is truncated", Options{}},
		{"empty", formTRTRaw, []string{trtMeta, trtMetaText, "rank0_raw.safetensors", safetensorsText()}, "no iteration was recorded", Options{}},
		{"name", formTRTRaw, []string{trtMeta, trtMetaText, "rank0_raw.safetensors", safetensorsText(trtIDs("x_1", 0, 1))}, `tensor "x_1" is not named`, Options{}},
		{"one dimension", formTRTRaw, []string{trtMeta, trtMetaText, "rank0_raw.safetensors", counts}, `tensor "7_0" is I32 [4], want whole numbers in 2 dimensions`, Options{}},
		{"other top-k", formTRTRaw, []string{trtMeta, `{"num_experts":4,"num_experts_per_token":1}`, "rank0_raw.safetensors", good}, `shape [1 2], want [tokens, 1]`, Options{}},
		{"layer missing", formTRTRaw, []string{trtMeta, trtMetaText, "rank0_raw.safetensors", safetensorsText(trtIDs("7_0", 0, 1), trtIDs("7_1", 0, 1), trtIDs("8_1", 0, 1))}, `iteration 8 has ids of some layers only`, Options{}},
		{"last layer missing", formTRTRaw, []string{trtMeta, trtMetaText, "rank0_raw.safetensors", safetensorsText(trtIDs("7_0", 0, 1), trtIDs("7_1", 0, 1), trtIDs("8_0", 0, 1))}, `tensor "8_1"`, Options{}},
		{"ragged", formTRTRaw, []string{trtMeta, trtMetaText, "rank0_raw.safetensors", safetensorsText(trtIDs("7_0", 0, 1), trtIDs("7_1", 0, 1, 2, 3))}, "iteration 7: layer 1 has 2 rows, but layer 0 has 1", Options{}},
		{"id outside", formTRTRaw, []string{trtMeta, trtMetaText, "rank0_raw.safetensors", safetensorsText(trtIDs("7_0", 0, 4))}, `tensor "7_0", token 0: expert id 4 is outside 0 to 3`, Options{}},
		{"id twice", formTRTRaw, []string{trtMeta, trtMetaText, "rank0_raw.safetensors", safetensorsText(trtIDs("7_0", 1, 1))}, "named twice", Options{}},
		{"counts of other experts", formTRTCounts, []string{trtMeta, `{"num_experts":5,"num_experts_per_token":1}`, "rank0.safetensors", counts}, `"7_0" has 4 counts, want one for each of 5 experts`, Options{}},
		{"negative count", formTRTCounts, []string{trtMeta, trtMetaText, "rank0.safetensors", safetensorsText(trtCounts("7_0", 0, -1, 0, 0))}, "expert 1 was used -1 times", Options{}},
		{"counts missing", formTRTCounts, []string{trtMeta, trtMetaText, "rank0.safetensors", safetensorsText(trtCounts("7_0", 0, 0, 0, 0), trtCounts("8_1", 0, 0, 0, 0))}, `"7_1" is missing`, Options{}},
		{"other experts", formTRTCounts, []string{trtMeta, trtMetaText, "rank0.safetensors", counts}, "experts 4, but 8 was given", Options{Experts: 8}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.From = c.form
			i, err := Open([]string{trtFolder(t, c.files...)}, c.o)
			if err == nil {
				_, err = txTokens(i)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func FuzzTRT(f *testing.F) {
	txFuzz(f, formTRTRaw, "rank0_raw.safetensors", Options{Experts: 4, TopK: 2}, safetensorsText(trtIDs("7_0", 0, 1), trtIDs("7_1", 3, 2)))
}

func FuzzTRTCounts(f *testing.F) {
	txFuzz(f, formTRTCounts, "rank0.safetensors", Options{Experts: 4, TopK: 2}, safetensorsText(trtCounts("7_0", 1, 2, 3, 4), trtCounts("8_0", 0, 0, 1, 1)))
}
