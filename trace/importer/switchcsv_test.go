package importer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider/trace"
)

const switchHead = "iteration,latency (ms),total number of bytes sent,total number of bytes recv,tokens per expert\n"

const switchSample = switchHead + "3,30.02,0,919,\"[143, 248, 197]\"\n4,29.6,0,920,\"[104, 208, 164]\"\n"

func writeSwitch(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSwitchCSV(t *testing.T) {
	dir := writeSwitch(t, map[string]string{
		"128e_moe_l1.csv": switchSample, "128e_moe_l11.csv": strings.Replace(switchSample, "143", "1", 1),
		"128e_moe_l1_decode.csv": switchHead + "3,1,0,0,\"[0, 5, 0]\"\n", "128e_moe_l11_decode.csv": switchHead + "3,1,0,0,\"[5, 0, 0]\"\n",
		"README.md": "about",
	})
	i := txOpen(t, formSwitchCSV, Options{TopK: 1, Model: "switch"}, dir)
	want := &trace.Histogram{
		Model: "switch", Layers: 2, LayerIDs: []int{1, 11}, Experts: 3, TopK: 1, Unit: "tokens",
		Source: i.Histogram.Source, Note: "a table for each forward pass, in order",
		Tables: []trace.Counts{
			{Label: "encoder iteration 3", Counts: [][]float64{{143, 248, 197}, {1, 248, 197}}},
			{Label: "encoder iteration 4", Counts: [][]float64{{104, 208, 164}, {104, 208, 164}}},
			{Label: "decoder iteration 3", Counts: [][]float64{{0, 5, 0}, {5, 0, 0}}},
		},
	}
	if diff := cmp.Diff(want, i.Histogram); diff != "" {
		t.Errorf("histogram (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(want.Source, "imported from moe-inference-csv: ") || strings.Contains(want.Source, dir) {
		t.Errorf("source is %q", want.Source)
	}
}

func TestSwitchCSVDamage(t *testing.T) {
	swap := swapper(t, switchSample)
	txRunDamage(t, formSwitchCSV, "moe_l3.csv", Options{}, []txDamage{
		{name: "empty", content: "", want: "it has no rows"},
		{name: "no rows", content: switchHead, want: "it has no rows"},
		{name: "columns", content: swap("latency (ms)", "latency"), want: "line 1: the columns are"},
		{name: "number of columns", content: swap("3,30.02,0,", "3,30.02,"), want: "line 2: wrong number of fields"},
		{name: "iteration", content: swap("\n4,", "\nx,"), want: `line 3: iteration "x" is no number`},
		{name: "list", content: swap("[104, 208, 164]", "104"), want: "line 3: tokens per expert"},
		{name: "ragged", content: swap("[104, 208, 164]", "[104]"), want: "line 3: there are 1 counts"},
		{name: "no counts", content: swap("[143, 248, 197]", "[]"), want: "line 2: there are 0 counts"},
		{name: "cut in a quote", content: switchSample[:len(switchSample)-3], want: "line 3: "},
		{name: "negative", content: swap("104", "-104"), want: "the count is -104"},
		{name: "other experts", content: switchSample, want: "the data has experts 3, but 4 was given", is: errAny, opts: &Options{Experts: 4}},
	})
	for name, c := range map[string]struct {
		files map[string]string
		opts  Options
		want  string
	}{
		"name":        {map[string]string{"layer3.csv": switchSample}, Options{}, "layer3.csv: damaged at byte 0: the name tells no layer"},
		"zeros":       {map[string]string{"moe_l03.csv": switchSample}, Options{}, "the name tells no layer"},
		"two models":  {map[string]string{"a_moe_l1.csv": switchSample, "b_moe_l1.csv": switchHead + "3,1,0,0,\"[1, 2]\"\n"}, Options{}, "the files are of models with [2 3] experts a layer: name those of one, or choose with --experts"},
		"layer twice": {map[string]string{"a_moe_l1.csv": switchSample, "b_moe_l1.csv": switchSample}, Options{}, "b_moe_l1.csv: damaged at byte 0: layer 1 of the encoder is there twice"},
		"passes":      {map[string]string{"moe_l1.csv": switchSample, "moe_l3.csv": switchHead + "3,1,0,0,\"[1, 2, 3]\"\n"}, Options{}, "layer 3 of the encoder has other passes (1)"},
		"stacks":      {map[string]string{"moe_l1.csv": switchSample, "moe_l3_decode.csv": switchSample}, Options{}, "the decoder has layers [3], but the encoder has [1]"},
	} {
		if _, err := Open([]string{writeSwitch(t, c.files)}, c.opts); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
	}
}

func FuzzSwitchCSV(f *testing.F) {
	txFuzz(f, formSwitchCSV, "moe_l3.csv", Options{}, switchSample, switchHead)
}
