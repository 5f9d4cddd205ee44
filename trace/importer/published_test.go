package importer

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"outrider/internal/testfiles"
	"outrider/trace"
)

// published is a histogram file of the collection, decoded without the code under
// test.
type published struct {
	Heat     [][]float64                                    `json:"heat"`
	Prompts  [][]float64                                    `json:"prompts_using_expert"`
	Subjects map[string]struct{ Mean_fraction [][]float64 } `json:"subjects"`
	Counts   map[string][]map[string]float64                `json:"counts"`
	Steps    map[string][][]float64                         `json:"steps"`
}

func readPublished(t *testing.T, name string) (p published) {
	t.Helper()
	f, err := os.Open(testfiles.Shared(t, "traces/histograms/"+name+".json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(&p); err != nil {
		t.Fatal(err)
	}
	return p
}

// wantPublished compares a histogram with the file it should equal. A stack's
// tables are passes, the file has passes for each layer.
func wantPublished(t *testing.T, h *trace.Histogram, p published, stacks ...string) {
	t.Helper()
	byLabel := map[string][][]float64{}
	for _, table := range h.Tables {
		byLabel[table.Label] = table.Counts
	}
	if len(byLabel) != len(h.Tables) {
		t.Errorf("%d tables have %d different labels", len(h.Tables), len(byLabel))
	}
	checked := 0
	check := func(label string, got, want any) {
		checked++
		if !reflect.DeepEqual(got, want) {
			t.Errorf("table %q differs from the published one", label)
		}
	}
	for _, want := range [][][]float64{p.Heat, p.Prompts} {
		if want != nil {
			check("", txSum(h), want)
		}
	}
	for name, want := range p.Subjects {
		check(name, byLabel[name], want.Mean_fraction)
	}
	for name, want := range p.Counts {
		if !strings.Contains(name, "crosslayer") {
			check(name, sparse(byLabel[name]), want)
		}
	}
	for s, stack := range stacks {
		tables := h.Tables[s*100 : (s+1)*100]
		for l, layer := range h.LayerIDs {
			var got [][]float64
			for _, table := range tables {
				got = append(got, table.Counts[l])
			}
			key := stack + "_l" + string('0'+rune(layer%10))
			if layer > 9 {
				key = stack + "_l11"
			}
			check(key, got, p.Steps[key])
		}
	}
	if checked == 0 {
		t.Error("nothing was compared")
	}
}

// sparse is a table as JSON objects that leave unused experts out.
func sparse(table [][]float64) (rows []map[string]float64) {
	for _, counts := range table {
		row := map[string]float64{}
		for e, n := range counts {
			if n > 0 {
				text, _ := json.Marshal(e)
				row[string(text)] = n
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// collection is what the files of the collection hold: shape, unit and tables.
var collection = []struct {
	file                  string
	layers, experts, topK int
	ids                   []int
	unit                  string
	tables                int
}{
	{"gemma4-26b-a4b", 30, 128, 8, nil, "tokens", 1},
	{"glm52", 75, 256, 8, nil, "tokens", 1},
	{"mixtral-8x7b-mmlu", 32, 8, 2, nil, "share of tokens", 57},
	{"mixtral-8x7b-olmoe-study", 3, 8, 2, nil, "tokens", 10},
	{"olmoe-1b-7b", 3, 64, 8, []int{0, 7, 15}, "tokens", 11},
	{"qwen3-30b-a3b", 48, 128, 8, nil, "tokens", 1},
	{"qwen3-coder-next", 48, 512, 10, nil, "prompts", 1},
	{"qwen3-next-80b-a3b", 48, 512, 10, nil, "tokens", 1},
	{"switch-base-128-per-step", 6, 128, 1, []int{1, 3, 5, 7, 9, 11}, "tokens", 200},
	{"switch-base-256-per-step", 6, 256, 1, []int{1, 3, 5, 7, 9, 11}, "tokens", 200},
}

func TestCollection(t *testing.T) {
	folder := testfiles.Shared(t, "traces/histograms")
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(files) != len(collection) {
		t.Errorf("the folder holds %d files, %v; want %d", len(files), err, len(collection))
	}
	for _, c := range collection {
		t.Run(c.file, func(t *testing.T) {
			i := txOpen(t, formCollection, Options{}, filepath.Join(folder, c.file+".json.gz"))
			h := i.Histogram
			if h.Layers != c.layers || h.Experts != c.experts || h.TopK != c.topK || !slices.Equal(h.LayerIDs, c.ids) || h.Unit != c.unit || len(h.Tables) != c.tables {
				t.Errorf("got %d layers %v, %d experts, top-k %d, %d tables of %s; want %+v", h.Layers, h.LayerIDs, h.Experts, h.TopK, len(h.Tables), h.Unit, c)
			}
			if h.Model == "" || !strings.HasPrefix(h.Source, "github.com/") {
				t.Errorf("model is %q, source %q", h.Model, h.Source)
			}
			wantPublished(t, h, readPublished(t, c.file), stacksOf(c.tables)...)
		})
	}
}

func stacksOf(tables int) []string {
	if tables == 200 {
		return []string{"encoder", "decoder"}
	}
	return nil
}

// Each raw publication equals what was made from it.
func TestRawPublications(t *testing.T) {
	switchFiles := func(prefix string) func(string) []string {
		return func(folder string) []string {
			files, err := filepath.Glob(filepath.Join(folder, prefix+"*.csv.gz"))
			if err != nil {
				t.Fatal(err)
			}
			// The encoder's files first, as in the collection.
			slices.SortFunc(files, func(a, b string) int {
				if x, y := strings.Contains(a, "_decode"), strings.Contains(b, "_decode"); x != y {
					return map[bool]int{false: -1, true: 1}[x]
				}
				return strings.Compare(a, b)
			})
			return files
		}
	}
	file := func(name string) func(string) []string {
		return func(folder string) []string { return []string{filepath.Join(folder, name)} }
	}
	folderItself := func(folder string) []string { return []string{folder} }
	for _, c := range []struct {
		folder string
		files  func(folder string) []string
		form   string
		opts   Options
		equals string
		topK   int
		tables int
	}{
		{"mbolt-coactivation", file("coactivation_qwen3-30b-a3b.json.gz"), formMboltHeat, Options{}, "qwen3-30b-a3b", 8, 1},
		{"mbolt-coactivation", file("coactivation_qwen3-next-80b-a3b.json.gz"), formMboltHeat, Options{}, "qwen3-next-80b-a3b", 10, 1},
		{"mbolt-coactivation", file("coactivation_glm52_overlay.json.gz"), formMboltHeat, Options{}, "glm52", 8, 1},
		{"olmoe-routing-counts", file("counts.json.gz"), formOlmoeCounts, Options{Model: "olmoe", Experts: 64}, "olmoe-1b-7b", 8, 11},
		{"olmoe-routing-counts", folderItself, formOlmoeCounts, Options{Model: "mistral", Experts: 8}, "mixtral-8x7b-olmoe-study", 2, 10},
		{"qwen3-coder-next-flash-moe", folderItself, formFlashProfile, Options{}, "qwen3-coder-next", 0, 1},
		{"gemma4-26b-expertflow", file("routing-locality.json.gz"), formLocality, Options{Experts: 128}, "gemma4-26b-a4b", 8, 4},
		{"switch-base-moe-inference", switchFiles("128e_"), formSwitchCSV, Options{}, "switch-base-128-per-step", 0, 200},
		{"switch-base-moe-inference", switchFiles("256e_"), formSwitchCSV, Options{TopK: 1}, "switch-base-256-per-step", 1, 200},
		{"mixtral-vis-moe-mmlu", file("subject_means.json.gz"), formSubjects, Options{}, "mixtral-8x7b-mmlu", 0, 57},
	} {
		t.Run(c.equals, func(t *testing.T) {
			paths := c.files(testfiles.Shared(t, "traces/raw/"+c.folder))
			i := txOpen(t, c.form, c.opts, paths...)
			if h := i.Histogram; h.TopK != c.topK || len(h.Tables) != c.tables {
				t.Errorf("got top-k %d and %d tables, want %d and %d", h.TopK, len(h.Tables), c.topK, c.tables)
			}
			wantPublished(t, i.Histogram, readPublished(t, c.equals), stacksOf(c.tables)...)
			if i.NoOrder() == nil {
				t.Error("a histogram has no order, but says nothing of it")
			}
		})
	}
}

// The published folder holds both models of Switch.
func TestSwitchFolder(t *testing.T) {
	folder := testfiles.Shared(t, "traces/raw/switch-base-moe-inference")
	i := txOpen(t, formSwitchCSV, Options{Experts: 128}, folder)
	txWantNote(t, i, "12 of 24 files are of models with another number of experts than 128")
	if len(i.Histogram.Tables) != 200 || i.Histogram.Experts != 128 {
		t.Errorf("got %d tables of %d experts, want 200 of 128", len(i.Histogram.Tables), i.Histogram.Experts)
	}
	want := []string{"encoder iteration 3", "decoder iteration 3"}
	for _, label := range want {
		if !slices.ContainsFunc(i.Histogram.Tables, func(c trace.Counts) bool { return c.Label == label }) {
			t.Errorf("there is no table %q", label)
		}
	}
}
