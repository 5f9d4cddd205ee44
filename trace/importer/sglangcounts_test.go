package importer

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider/trace"
	"outrider/trace/importer/internal/torchfile/torchwrite"
)

// statDump is a dump of mode stat: two steps of three layers, the first dense.
func statDump() torchwrite.Dict {
	return torchwrite.Dict{
		{"rank", 0}, {"logical_count", torchwrite.Int32s([]int{2, 3, 2}, 0, 0, 5, 1, 2, 4, 0, 0, 0, 3, 3, 0)},
		{"average_utilization_rate_over_window", nil},
	}
}

func passDump(place any, counts ...*torchwrite.Tensor) torchwrite.Dict {
	records := []any{}
	for i, c := range counts {
		records = append(records, torchwrite.Dict{{"forward_pass_id", i}, {"rank", 0}, {"gatherer_key", "primary"}, {"global_physical_count", c}})
	}
	return torchwrite.Dict{{"records", records}, {"last_physical_to_logical_map", place}}
}

func TestSGLangStat(t *testing.T) {
	i := txOpen(t, formSGLangCounts, Options{Model: "m", TopK: 1}, txFile(t, "d.pt", savedText(t, statDump())))
	want := &trace.Histogram{
		Model: "m", Layers: 2, LayerIDs: []int{1, 2}, Experts: 2, TopK: 1, Unit: "tokens", Source: "imported from sglang-recorder-counts: d.pt",
		Tables: []trace.Counts{{Label: "step 0", Counts: [][]float64{{5, 1}, {2, 4}}}, {Label: "step 1", Counts: [][]float64{{0, 3}, {3, 0}}}},
	}
	if d := cmp.Diff(want, i.Histogram); d != "" {
		t.Errorf("histogram (-want +got):\n%s", d)
	}
	txWantNote(t, i, "1 of 3 layers counted nothing")
}

func TestSGLangPerPass(t *testing.T) {
	counts := torchwrite.Int32s([]int{2, 3}, 1, 2, 3, 4, 5, 6)
	i := txOpen(t, formSGLangCounts, Options{}, txFile(t, "d.pt", savedText(t, passDump(torchwrite.Int32s([]int{2, 3}, 0, 1, 0, 1, 1, 0), counts))))
	if d := cmp.Diff([]trace.Counts{{Label: "pass 0", Counts: [][]float64{{4, 2}, {6, 9}}}}, i.Histogram.Tables); d != "" {
		t.Errorf("tables (-want +got):\n%s", d)
	}
	txWantNote(t, i, "put down to the experts")
	i = txOpen(t, formSGLangCounts, Options{}, txFile(t, "d.pt", savedText(t, passDump(nil, counts, counts))))
	if d := cmp.Diff([][]float64{{1, 2, 3}, {4, 5, 6}}, i.Histogram.Tables[1].Counts); d != "" {
		t.Errorf("counts (-want +got):\n%s", d)
	}
	txWantNote(t, i, "numbered by slots")
}

func TestSGLangStatSummed(t *testing.T) {
	ones := make([]int32, maxSteps+1)
	for i := range ones {
		ones[i] = 1
	}
	i := txOpen(t, formSGLangCounts, Options{}, txFile(t, "d.pt", savedText(t, torchwrite.Dict{{"logical_count", torchwrite.Int32s([]int{maxSteps + 1, 1, 1}, ones...)}})))
	if h := i.Histogram; len(h.Tables) != 1 || h.Tables[0].Counts[0][0] != maxSteps+1 {
		t.Errorf("got %d tables, want one of all", len(h.Tables))
	}
	txWantNote(t, i, "4097 steps were summed up")
}

func TestSGLangCountsDamage(t *testing.T) {
	dump := func(v any) string { return savedText(t, v) }
	counts := torchwrite.Int32s([]int{1, 2}, 1, 2)
	txRunDamage(t, formSGLangCounts, "d.pt", Options{}, []txDamage{
		{name: "no zip", content: "x", want: "not a file of torch.save"},
		{name: "neither", content: dump(torchwrite.Dict{{"x", 1}}), want: "logical_count is nothing, want a tensor of 3 dimensions"},
		{name: "two dimensions", content: dump(torchwrite.Dict{{"logical_count", counts}}), want: "logical_count is a tensor, want"},
		{name: "no layers", content: dump(torchwrite.Dict{{"logical_count", torchwrite.Int32s([]int{1, 0, 2})}}), want: "0 layers of 2 experts"},
		{name: "no steps", content: dump(torchwrite.Dict{{"logical_count", torchwrite.Int32s([]int{0, 1, 2})}}), want: "holds no step"},
		{name: "zeros", content: dump(torchwrite.Dict{{"logical_count", torchwrite.Int32s([]int{1, 1, 2}, 0, 0)}}), want: "all counts are zero"},
		{name: "negative", content: dump(torchwrite.Dict{{"logical_count", torchwrite.Int32s([]int{1, 1, 2}, 1, -1)}}), want: "the count is -1"},
		{name: "other experts", content: dump(statDump()), want: "experts 2, but 4 was given", is: errAny, opts: &Options{Experts: 4}},
		{name: "passes differ", content: dump(passDump(nil, counts, torchwrite.Int32s([]int{1, 3}, 1, 2, 3))), want: "pass 1: trace: "},
		{name: "map differs", content: dump(passDump(torchwrite.Int32s([]int{1, 3}, 0, 1, 2), counts)), want: "global_physical_count has shape [1 2], which does not fit"},
		{name: "no counts", content: dump(passDump(nil, torchwrite.Int32s([]int{2}, 1, 2))), want: "want a tensor of 2 dimensions"},
	})
}

func FuzzSGLangCounts(f *testing.F) {
	txFuzz(f, formSGLangCounts, "d.pt", Options{}, savedText(f, statDump()), savedText(f, passDump(nil, torchwrite.Int32s([]int{1, 2}, 1, 2))))
}
