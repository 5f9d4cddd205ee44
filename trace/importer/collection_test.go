package importer

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider/trace"
)

// The five ways in which the collection holds counts, small.
var collectionSamples = map[string]string{
	"heat":     `{"kind":"histogram","model":"m","experts":3,"top_k":2,"layers":2,"source":"s","note":"n","heat":[[1,2,3],[4,0,2]],"measures":{"x":1}}`,
	"prompts":  `{"kind":"histogram","model":"m","experts":3,"layers":2,"prompts":4,"prompts_using_expert":[[1,2,3],[4,0,2]]}`,
	"subjects": `{"kind":"histogram","model":"m","experts":2,"layers":1,"subjects":{"b":{"questions":3,"mean_fraction":[[0.25,0.75]]},"a":{"questions":4,"mean_fraction":[[0.5,0.5]]}}}`,
	"counts":   `{"kind":"histogram","model":"m","experts":3,"layers_recorded":[0,7],"counts":{"t/x":[{"2":5},{"0":1,"1":4}],"pairs/x":[{"0,1":5}]}}`,
	"steps":    `{"kind":"histogram","model":"m","experts":2,"steps":{"encoder_l1":[[1,2],[3,0]],"decoder_l1":[[0,1]],"encoder_l3":[[2,1],[0,3]],"decoder_l3":[[1,0]]}}`,
}

func TestCollectionForms(t *testing.T) {
	source := "imported from histogram-collection: h.json"
	for name, want := range map[string]*trace.Histogram{
		"heat":    {Layers: 2, Experts: 3, TopK: 2, Unit: "tokens", Source: "s", Note: "n", Tables: []trace.Counts{{Counts: [][]float64{{1, 2, 3}, {4, 0, 2}}}}},
		"prompts": {Layers: 2, Experts: 3, Unit: "prompts", Source: source, Tables: []trace.Counts{{Counts: [][]float64{{1, 2, 3}, {4, 0, 2}}}}},
		"subjects": {Layers: 1, Experts: 2, Unit: "share of tokens", Source: source, Tables: []trace.Counts{
			{Label: "b", Counts: [][]float64{{0.25, 0.75}}}, {Label: "a", Counts: [][]float64{{0.5, 0.5}}}}},
		"counts": {Layers: 2, LayerIDs: []int{0, 7}, Experts: 3, Unit: "tokens", Source: source, Tables: []trace.Counts{{Label: "t/x", Counts: [][]float64{{0, 0, 5}, {1, 4, 0}}}}},
		"steps": {Layers: 2, LayerIDs: []int{1, 3}, Experts: 2, Unit: "tokens", Source: source, Tables: []trace.Counts{
			{Label: "encoder pass 0", Counts: [][]float64{{1, 2}, {2, 1}}}, {Label: "encoder pass 1", Counts: [][]float64{{3, 0}, {0, 3}}},
			{Label: "decoder pass 0", Counts: [][]float64{{0, 1}, {1, 0}}}}},
	} {
		want.Model = "m"
		i := txOpen(t, formCollection, Options{}, txFile(t, "h.json", collectionSamples[name]))
		if diff := cmp.Diff(want, i.Histogram); diff != "" {
			t.Errorf("%s: histogram (-want +got):\n%s", name, diff)
		}
	}
	i := txOpen(t, formCollection, Options{}, txFile(t, "h.json", collectionSamples["counts"]))
	txWantNote(t, i, "1 tables count pairs of experts")
	// Rows that have a count for each expert tell how many there are.
	i = txOpen(t, formCollection, Options{}, txFile(t, "h.json", `{"kind":"histogram","experts":0,"heat":[[1,2,0]]}`))
	if i.Histogram.Experts != 3 {
		t.Errorf("got %d experts, want the rows' 3", i.Histogram.Experts)
	}
	i = txOpen(t, formCollection, Options{}, txFile(t, "h.json", strings.Replace(collectionSamples["counts"], `"layers_recorded":[0,7],`, "", 1)))
	txWantNote(t, i, "Which 2 layers of the model the rows are is not told.")
}

func TestCollectionDamage(t *testing.T) {
	swap := func(name, old, new string) string {
		text := strings.Replace(collectionSamples[name], old, new, 1)
		if text == collectionSamples[name] {
			t.Fatalf("%s has no %s", name, old)
		}
		return text
	}
	txRunDamage(t, formCollection, "h.json", Options{}, []txDamage{
		{name: "cut", content: collectionSamples["heat"][:60], want: "damaged at byte 60: it is not JSON"},
		{name: "kind", content: swap("heat", `"kind":"histogram"`, `"kind":"trace"`), want: `kind is "trace"`},
		{name: "nothing", content: `{"kind":"histogram","experts":3}`, want: "it has none of the keys heat,"},
		{name: "other type", content: swap("heat", `[4,0,2]`, `[4,"0",2]`), want: "element 1:"},
		{name: "null", content: swap("heat", `[4,0,2]`, `[4,null,2]`), want: "element 1: a count is null"},
		{name: "layers", content: swap("heat", `"layers":2`, `"layers":3`), want: "it has rows for 2 layers, but tells of 3"},
		{name: "recorded", content: swap("counts", `[0,7]`, `[0,7,9]`), want: "layers_recorded names 3"},
		{name: "recorded order", content: swap("counts", `[0,7]`, `[7,0]`), want: "not ascending"},
		{name: "ragged", content: swap("heat", `[4,0,2]`, `[4,0]`), want: "layer 1: 2 counts, want one for each of 3 experts"},
		{name: "negative", content: swap("heat", `[4,0,2]`, `[4,-1,2]`), want: "the count is -1"},
		{name: "no rows", content: swap("heat", `[[1,2,3],[4,0,2]]`, `[]`), want: "has no rows"},
		{name: "empty subjects", content: `{"kind":"histogram","experts":3,"subjects":{}}`, want: "it holds no table"},
		{name: "only pairs", content: swap("counts", `"t/x":[{"2":5},{"0":1,"1":4}],`, ""), want: "it holds no table"},
		{name: "tally outside", content: swap("counts", `"2":5`, `"3":5`), want: `table "t/x", layer 0: expert 3 is outside 0 to 2`},
		{name: "tally twice", content: swap("counts", `"0":1,"1":4`, `"1":1,"1":4`), want: "layer 7: expert 1 is counted twice"},
		{name: "tally key", content: swap("counts", `"2":5`, `"two":5`), want: `key "two" names no expert`},
		{name: "tally rows", content: swap("counts", `{"2":5},{"0":1,"1":4}`, `{"2":5}`), want: "it has rows for 1 layers, but layers_recorded names 2"},
		{name: "table rows", content: swap("counts", `"pairs/x":[{"0,1":5}]`, `"u/x":[{"0":5}]`), want: `table "u/x" has 1 rows, want one for each of 2 layers`},
		{name: "key twice", content: swap("counts", `"pairs/x"`, `"t/x"`), want: `key "t/x" is there twice`},
		{name: "step key", content: swap("steps", `encoder_l3`, `encoder_x3`), want: `key "encoder_x3" of steps`},
		{name: "step layer", content: swap("steps", `decoder_l3`, `decoder_l5`), want: "the decoder has layers [1 5], but the encoder has [1 3]"},
		{name: "step count", content: swap("steps", `[[2,1],[0,3]]`, `[[2,1]]`), want: "other passes (1) than the layer before it (2)"},
		{name: "no steps", content: `{"kind":"histogram","experts":2,"steps":{}}`, want: "there are no passes"},
		{name: "empty steps", content: `{"kind":"histogram","experts":2,"steps":{"encoder_l1":[]}}`, want: "has no passes"},
		{name: "too many counts", content: `{"kind":"histogram","experts":65536,"counts":{"x":[{}]` + manyTables(2000) + `}}`, want: "131137536 counts, want at most"},
		{name: "too many layers", content: `{"kind":"histogram","experts":1,"heat":[` + strings.Repeat("[1],", 5000) + `[1]]}`, want: "more than 4096 elements"},
	})
}

func manyTables(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(`,"t` + strings.Repeat("i", i) + `":[{}]`)
	}
	return b.String()
}

func FuzzCollection(f *testing.F) {
	var seeds []string
	for _, s := range collectionSamples {
		seeds = append(seeds, s)
	}
	txFuzz(f, formCollection, "h.json", Options{}, seeds...)
}

func TestSubjects(t *testing.T) {
	const text = `{"law":{"questions":3,"mean_fraction":[[0.25,0.75],[1,0]]},"art":{"questions":1,"mean_fraction":[[0.5,0.5],[0,1]]}}`
	i := txOpen(t, formSubjects, Options{TopK: 2}, txFile(t, "subject_means.json", text))
	want := &trace.Histogram{
		Layers: 2, Experts: 2, TopK: 2, Unit: "share of tokens", Source: "imported from mixtral-vis-subjects: subject_means.json",
		Tables: []trace.Counts{{Label: "law", Counts: [][]float64{{0.25, 0.75}, {1, 0}}}, {Label: "art", Counts: [][]float64{{0.5, 0.5}, {0, 1}}}},
	}
	if diff := cmp.Diff(want, i.Histogram); diff != "" {
		t.Errorf("histogram (-want +got):\n%s", diff)
	}
	txWantNote(t, i, "mean over a subject's questions (4 in all)")
	txRunDamage(t, formSubjects, "subject_means.json", Options{}, []txDamage{
		{name: "empty", content: "{}", want: "it holds no mean_fraction"},
		{name: "no rows", content: `{"law":{"questions":3,"mean_fraction":[]}}`, want: "it holds no mean_fraction"},
		{name: "no experts", content: `{"law":{"questions":3,"mean_fraction":[[]]}}`, want: "give --experts", is: ErrNeedShape},
		{name: "ragged", content: strings.Replace(text, "[0,1]", "[1]", 1), want: `table "art", layer 1: 1 counts`},
		{name: "fewer layers", content: strings.Replace(text, ",[0,1]", "", 1), want: `table "art" has 1 rows`},
		{name: "no object", content: `[1]`, want: "want an object"},
	})
}

func FuzzSubjects(f *testing.F) {
	txFuzz(f, formSubjects, "s.json", Options{}, `{"law":{"questions":3,"mean_fraction":[[0.25,0.75],[1,0]]}}`)
}
