package importer

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider/internal/testfiles"
	"outrider/trace"
)

func TestCountsNpy(t *testing.T) {
	matrices := npyText("<f8", []int{2, 2, 3}, float64Text(1, 0, 2.5, 3, 0, 0, 0, 7, 0, 1, 1, 1))
	i := txOpen(t, formCountsNpy, Options{}, txFile(t, "eam.npy", matrices))
	want := &trace.Histogram{Layers: 2, Experts: 3, Source: "imported from counts-npy: eam.npy", Tables: []trace.Counts{
		{Label: "0", Counts: [][]float64{{1, 0, 2.5}, {3, 0, 0}}}, {Label: "1", Counts: [][]float64{{0, 7, 0}, {1, 1, 1}}},
	}}
	if d := cmp.Diff(want, i.Histogram); d != "" {
		t.Errorf("histogram (-want +got):\n%s", d)
	}
	txWantNote(t, i, "a sequence for MoE-Infinity")

	weight := npyText("<i4", []int{2, 3}, int32Text(90, 132, 40, 61, 104, 165))
	i = txOpen(t, formCountsNpy, Options{TopK: 2, LayerIDs: []int{3, 4}, Model: "m"}, txFile(t, "weight.npy", weight))
	want = &trace.Histogram{Model: "m", Layers: 2, Experts: 3, TopK: 2, LayerIDs: []int{3, 4}, Source: "imported from counts-npy: weight.npy",
		Tables: []trace.Counts{{Counts: [][]float64{{90, 132, 40}, {61, 104, 165}}}}}
	if d := cmp.Diff(want, i.Histogram); d != "" {
		t.Errorf("histogram (-want +got):\n%s", d)
	}
}

func TestCountsNpyDamage(t *testing.T) {
	ok := npyText("<f8", []int{1, 2}, float64Text(1, 2))
	txRunDamage(t, formCountsNpy, "c.npy", Options{}, []txDamage{
		{name: "one dimension", content: npyText("<f8", []int{2}, float64Text(1, 2)), want: "float64 [2], want [layers, experts] or"},
		{name: "negative", content: npyText("<f8", []int{1, 2}, float64Text(1, -2)), want: "layer 0, expert 1: the count is -2"},
		{name: "not a number", content: npyText("<f8", []int{1, 1}, float64Text(math.NaN())), want: "the count is NaN"},
		{name: "infinite", content: npyText("<f8", []int{1, 1}, float64Text(math.Inf(1))), want: "the count is +Inf"},
		{name: "cut", content: ok[:len(ok)-1], want: "ends inside the array"},
		{name: "bytes behind", content: ok + "\x00", want: "more bytes follow"},
		{name: "no experts", content: npyText("<f8", []int{2, 0}, ""), want: "want some tables"},
		{name: "too many tables", content: npyText("|u1", []int{1 << 19, 1, 1}, ""), want: "at most 262144"},
		{name: "too many counts", content: npyText("|u1", []int{1 << 10, 1 << 10, 1 << 10}, ""), want: "name fewer files"},
		{name: "other layers", content: ok, want: "the data has layers 1, but 2 was given", is: errAny, opts: &Options{Layers: 2}},
		{name: "Fortran order", content: npyDictText("{'descr': '<f8', 'fortran_order': True, 'shape': (1, 1), }", float64Text(1)), want: "Fortran order"},
	})
	_, err := Open([]string{txFile(t, "a.npy", ok), txFile(t, "b.npy", npyText("<f8", []int{1, 1}, float64Text(1)))}, Options{})
	if err == nil || !strings.Contains(err.Error(), "b.npy") || !strings.Contains(err.Error(), "but the first file's has 1 of 2") {
		t.Errorf("got %v, want the second file's shape", err)
	}
}

// The published frequencies of Mixtral-8x7B.
func TestCountsNpyResidency(t *testing.T) {
	i := txOpen(t, formCountsNpy, Options{}, testfiles.Shared(t, "traces/raw/mixtral-residency-info/expert_frequencies.npy"))
	h := i.Histogram
	if h.Layers != 32 || h.Experts != 8 || len(h.Tables) != 1 || h.Unit != "" {
		t.Fatalf("got %d layers of %d experts, %d tables of %q", h.Layers, h.Experts, len(h.Tables), h.Unit)
	}
	for l, row := range h.Tables[0].Counts {
		for e, n := range row {
			if n <= 0 || n > 1e9 {
				t.Errorf("layer %d, expert %d: %v is no likely count", l, e, n)
			}
		}
	}
}

// The means over the questions of a subject are the published means, which were
// rounded to six digits.
func TestCountsNpyMMLU(t *testing.T) {
	folder := testfiles.Shared(t, "traces/raw/mixtral-vis-moe-mmlu")
	files, err := filepath.Glob(filepath.Join(folder, "*.npy.gz"))
	if err != nil || len(files) != 12 {
		t.Fatalf("the folder holds %d subjects, %v; want 12", len(files), err)
	}
	means := readPublished(t, "mixtral-8x7b-mmlu").Subjects
	all := txOpen(t, formCountsNpy, Options{}, folder).Histogram
	questions := 0
	for _, path := range files {
		subject := strings.TrimSuffix(filepath.Base(path), ".npy.gz")
		h := txOpen(t, formCountsNpy, Options{}, path).Histogram
		questions += len(h.Tables)
		want := means[subject].Mean_fraction
		if h.Layers != 32 || h.Experts != 8 || len(want) != 32 {
			t.Fatalf("%s: %d layers of %d experts, %d published", subject, h.Layers, h.Experts, len(want))
		}
		for l, sums := range txSum(h) {
			for e, sum := range sums {
				if mean := sum / float64(len(h.Tables)); math.Abs(mean-want[l][e]) > 6e-7 {
					t.Errorf("%s, layer %d, expert %d: mean %v, published %v", subject, l, e, mean, want[l][e])
				}
			}
		}
	}
	if len(all.Tables) != questions || !strings.HasPrefix(all.Tables[0].Label, "abstract_algebra/") {
		t.Errorf("the folder has %d tables, the first %q; want %d", len(all.Tables), all.Tables[0].Label, questions)
	}
}

func FuzzCountsNpy(f *testing.F) {
	txFuzz(f, formCountsNpy, "c.npy", Options{}, npyText("<f8", []int{1, 2}, float64Text(1, 2)), npyText("|u1", []int{2, 2, 1}, "\x01\x00\x02\x01"))
}
