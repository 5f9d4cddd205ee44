package importer

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider/trace"
)

// swapper replaces a part of a sample that must be there.
func swapper(t testing.TB, sample string) func(old, new string) string {
	return func(old, new string) string {
		t.Helper()
		if !strings.Contains(sample, old) {
			t.Fatalf("the sample has no %s", old)
		}
		return strings.Replace(sample, old, new, 1)
	}
}

const mboltSample = `{"model":"qwen","quant":"IQ3","n_layers":2,"n_expert_per_layer":3,"total_experts":6,"k":2,"n_decode_tokens":4,"flat_index":"gid","layers":[
{"layer":0,"heat":[4,4,0],"pairs":[[0,1,4,1.5]],"clusters":[[0,1]],"chain_order":[0,1,2]},{"layer":1,"heat":[1,3,4],"pairs":[],"clusters":[],"chain_order":[]}]}`

const mboltOverlay = `{"artifact":"atlas","source_trace":"export/v2","flat_index":"gid","total_experts":9,"n_expert_per_layer":3,"k":2,"profile_rows":{"used":"decode only","decode_rows":2},
"layers":[{"abs_layer":3,"moe_order":0,"gid_base":0,"heat":[2,1,1]}]}`

func TestMboltHeat(t *testing.T) {
	i := txOpen(t, formMboltHeat, Options{}, txFile(t, "coactivation.json", mboltSample))
	want := &trace.Histogram{
		Model: "qwen", Layers: 2, Experts: 3, TopK: 2, Unit: "tokens", Source: "imported from mbolt-coactivation: coactivation.json",
		Note: "decoded tokens only; quantised as IQ3", Tables: []trace.Counts{{Counts: [][]float64{{4, 4, 0}, {1, 3, 4}}}},
	}
	if diff := cmp.Diff(want, i.Histogram); diff != "" {
		t.Errorf("histogram (-want +got):\n%s", diff)
	}
	txWantNote(t, i, "were left out")
	h := txOpen(t, formMboltHeat, Options{Model: "GLM"}, txFile(t, "overlay.json", mboltOverlay)).Histogram
	if h.Model != "GLM" || h.LayerIDs[0] != 3 || h.Note != "decoded tokens only; from export/v2" {
		t.Errorf("overlay: got %+v", h)
	}
}

func TestMboltHeatDamage(t *testing.T) {
	swap := swapper(t, mboltSample)
	txRunDamage(t, formMboltHeat, "coactivation.json", Options{}, []txDamage{
		{name: "cut", content: mboltSample[:200], want: "damaged at byte 200: it is not JSON"},
		{name: "layers", content: swap(`"n_layers":2`, `"n_layers":3`), want: "it has 2 layers, but n_layers is 3"},
		{name: "layer twice", content: swap(`"layer":1`, `"layer":0`), want: "not ascending"},
		{name: "layer order", content: swap(`"layer":0`, `"layer":5`), want: "not in ascending order"},
		{name: "no layer", content: swap(`"layer":1`, `"lair":1`), want: "element 1 of layers has no layer"},
		{name: "wrong count", content: swap(`[1,3,4]`, `[1,3,5]`), want: "layer 1: heat counts 9 uses, want 8: 2 for each of 4 tokens"},
		{name: "ragged", content: swap(`[1,3,4]`, `[4,4]`), want: "layer 1: 2 counts, want one for each of 3 experts"},
		{name: "negative", content: swap(`[1,3,4]`, `[9,-1,0]`), want: "the count is -1"},
		{name: "no layers", content: `{"flat_index":"gid","layers":[]}`, want: "it has no layers"},
		{name: "other top-k", content: mboltSample, want: "the data has top-k 2, but 4 was given", is: errAny, opts: &Options{TopK: 4}},
	})
}

func FuzzMboltHeat(f *testing.F) {
	txFuzz(f, formMboltHeat, "c.json", Options{}, mboltSample, mboltOverlay)
}

const olmoeSample = `{"a/expert_counts/web":[{"1":4,"0":2},{"2":6}],"a/expert_counts_top1/web":[{"1":3},{"2":3}],"a/expert_counts_crosslayer/web":[{"1,2":3}],"b/expert_counts/web":[{"9":1}]}`

func TestOlmoeCounts(t *testing.T) {
	i := txOpen(t, formOlmoeCounts, Options{Model: "a", Experts: 3}, txFile(t, "counts.json", olmoeSample))
	want := &trace.Histogram{
		Model: "a", Layers: 2, Experts: 3, TopK: 2, Unit: "tokens", Source: "imported from olmoe-counts: counts.json",
		Tables: []trace.Counts{{Label: "expert_counts/web", Counts: [][]float64{{2, 4, 0}, {0, 0, 6}}}, {Label: "expert_counts_top1/web", Counts: [][]float64{{0, 3, 0}, {0, 0, 3}}}},
	}
	if diff := cmp.Diff(want, i.Histogram); diff != "" {
		t.Errorf("histogram (-want +got):\n%s", diff)
	}
	for _, note := range []string{"1 tables count pairs", "holds 2 models; the others", "Which 2 layers"} {
		txWantNote(t, i, note)
	}
	only := `{"b/expert_counts/web":[{"0":4,"1":2}]}`
	if h := txOpen(t, formOlmoeCounts, Options{Experts: 2, LayerIDs: []int{4}}, txFile(t, "counts.json", only)).Histogram; h.Model != "b" || h.TopK != 0 || h.LayerIDs[0] != 4 {
		t.Errorf("got %+v, want model b, top-k unknown, block 4", h)
	}
	// Fractions and tables that do not agree leave top-k unknown.
	for _, text := range []string{swapper(t, olmoeSample)(`"1":4`, `"1":5`), swapper(t, olmoeSample)(`{"2":3}`, `{"2":4}`), swapper(t, olmoeSample)(`{"2":3}`, `{}`)} {
		if h := txOpen(t, formOlmoeCounts, Options{Model: "a", Experts: 3}, txFile(t, "counts.json", text)).Histogram; h.TopK != 0 {
			t.Errorf("%s: top-k is %d, want it unknown", text, h.TopK)
		}
	}
}

func TestOlmoeCountsDamage(t *testing.T) {
	swap, o := swapper(t, olmoeSample), Options{Model: "a", Experts: 3}
	txRunDamage(t, formOlmoeCounts, "counts.json", o, []txDamage{
		{name: "which model", content: olmoeSample, want: "holds 2 models: choose one with --model: a, b", is: ErrNeedShape, opts: &Options{Experts: 3}},
		{name: "no such model", content: olmoeSample, want: "choose one with --model: a, b", is: ErrNeedShape, opts: &Options{Experts: 3, Model: "c"}},
		{name: "cut", content: olmoeSample[:50], want: "damaged at byte 50: it is not JSON"},
		{name: "key", content: swap(`a/expert_counts/web`, `a-expert_counts`), want: `key "a-expert_counts" is not model/table/domain`},
		{name: "only pairs", content: `{"a/expert_counts_crosslayer/web":[{"1,2":3}]}`, want: "has no table of experts"},
		{name: "outside", content: swap(`"2":6`, `"3":6`), want: `table "expert_counts/web", layer 1: expert 3 is outside 0 to 2`},
		{name: "ragged", content: swap(`{"1":3},{"2":3}`, `{"1":3}`), want: `table "expert_counts_top1/web" has 1 rows`},
		{name: "no count", content: swap(`"2":6`, `"2":null`), want: `expert "2": the count is null`},
		{name: "not a count", content: swap(`"2":6`, `"2":[]`), want: `in "a/expert_counts/web": element 1: expert "2"`},
		{name: "negative", content: swap(`"2":6`, `"2":-6`), want: "the count is -6"},
		{name: "empty", content: `{}`, want: "holds 0 models", is: ErrNeedShape},
	})
}

func FuzzOlmoeCounts(f *testing.F) {
	txFuzz(f, formOlmoeCounts, "counts.json", Options{Model: "a", Experts: 3}, olmoeSample)
}

const flashSample = `{"model":"q","num_prompts":4,"threshold":0.5,"capacity":2,"num_experts":3,"moe_layers":2,"layers":{"10":{"universal":[1],"activation_counts":{"1":4},"total_unique":1},"2":{"universal":[],"activation_counts":{"0":1,"2":2},"total_unique":2}}}`

func TestFlashProfile(t *testing.T) {
	i := txOpen(t, formFlashProfile, Options{}, txFile(t, "profile.json", flashSample))
	want := &trace.Histogram{
		Model: "q", Layers: 2, LayerIDs: []int{2, 10}, Experts: 3, Unit: "prompts", Source: "imported from flash-moe-profile: profile.json",
		Tables: []trace.Counts{{Counts: [][]float64{{1, 0, 2}, {0, 4, 0}}}},
	}
	if diff := cmp.Diff(want, i.Histogram); diff != "" {
		t.Errorf("histogram (-want +got):\n%s", diff)
	}
	txWantNote(t, i, "4 prompts")
}

func TestFlashProfileDamage(t *testing.T) {
	swap := swapper(t, flashSample)
	txRunDamage(t, formFlashProfile, "profile.json", Options{}, []txDamage{
		{name: "cut", content: flashSample[:100], want: "damaged at byte 100: it is not JSON"},
		{name: "layers", content: swap(`"moe_layers":2`, `"moe_layers":3`), want: "it has 2 layers, but moe_layers is 3"},
		{name: "layer key", content: swap(`"10":`, `"x":`), want: `key "x" names no layer`},
		{name: "layer twice", content: swap(`"10":`, `"2":`), want: `key "2" is there twice`},
		{name: "outside", content: swap(`"2":2`, `"3":2`), want: "layer 2: expert 3 is outside 0 to 2"},
		{name: "more than prompts", content: swap(`"1":4`, `"1":5`), want: "layer 10: expert 1 was used by 5 prompts of 4"},
		{name: "pairs", content: swap(`"1":4`, `"1,2":4`), want: "layer 10: the keys name pairs of experts"},
	})
}

func FuzzFlashProfile(f *testing.F) { txFuzz(f, formFlashProfile, "p.json", Options{}, flashSample) }

const localitySample = `{"all_workloads":{"0":{"adjacent_token_reuse_rate":0.2,"event_count":3,"expert_demand_count":6,"frequency":{"0":3,"10":2,"2":1},"lru":{"4":{"hits":1}},"reuse_distance":{"histogram":{"0":1}}},
"1":{"event_count":3,"expert_demand_count":6,"frequency":{"1":6}}},
"by_family":{"chat":{"0":{"event_count":2,"expert_demand_count":4,"frequency":{"0":2,"10":2}},"1":{"event_count":2,"expert_demand_count":4,"frequency":{"1":4}}},
"mmlu":{"0":{"event_count":1,"expert_demand_count":2,"frequency":{"0":1,"2":1}},"1":{"event_count":1,"expert_demand_count":2,"frequency":{"1":2}}}},"schema_version":"1.0.0"}`

func TestLocality(t *testing.T) {
	i := txOpen(t, formLocality, Options{Experts: 11}, txFile(t, "routing-locality.json", localitySample))
	row := func(n map[int]float64) []float64 {
		r := make([]float64, 11)
		for e, v := range n {
			r[e] = v
		}
		return r
	}
	want := &trace.Histogram{
		Layers: 2, Experts: 11, TopK: 2, Unit: "tokens", Source: "imported from expertflow-locality: routing-locality.json",
		Tables: []trace.Counts{
			{Label: "chat", Counts: [][]float64{row(map[int]float64{0: 2, 10: 2}), row(map[int]float64{1: 4})}},
			{Label: "mmlu", Counts: [][]float64{row(map[int]float64{0: 1, 2: 1}), row(map[int]float64{1: 2})}},
		},
	}
	if diff := cmp.Diff(want, i.Histogram); diff != "" {
		t.Errorf("histogram (-want +got):\n%s", diff)
	}
	// Families that are not all of it: only the whole is given.
	text := strings.NewReplacer(`"frequency":{"1":2}`, `"frequency":{"2":2}`).Replace(localitySample)
	i = txOpen(t, formLocality, Options{Experts: 11}, txFile(t, "routing-locality.json", text))
	txWantNote(t, i, "2 families of workloads do not add up")
	if h := i.Histogram; len(h.Tables) != 1 || h.Tables[0].Counts[1][1] != 6 {
		t.Errorf("got %d tables, want the whole", len(h.Tables))
	}
	// Layers that differ in uses a token.
	text = strings.NewReplacer(`"1":{"event_count":3`, `"1":{"event_count":6`).Replace(localitySample)
	if h := txOpen(t, formLocality, Options{Experts: 11}, txFile(t, "routing-locality.json", text)).Histogram; h.TopK != 0 {
		t.Errorf("top-k is %d, want it unknown", h.TopK)
	}
}

func TestLocalityDamage(t *testing.T) {
	swap := swapper(t, localitySample)
	txRunDamage(t, formLocality, "routing-locality.json", Options{Experts: 11}, []txDamage{
		{name: "cut", content: localitySample[:300], want: "damaged at byte 300: it is not JSON"},
		{name: "wrong count", content: swap(`"2":1}`, `"2":2}`), want: "all_workloads, layer 0: frequency counts 7 uses, but expert_demand_count is 6"},
		{name: "family's wrong count", content: swap(`"frequency":{"1":4}`, `"frequency":{"1":5}`), want: "chat, layer 1: frequency counts 5 uses"},
		{name: "outside", content: swap(`"10":2,"2":1`, `"11":2,"2":1`), want: "layer 0: expert 11 is outside 0 to 10"},
		{name: "layer key", content: swap(`"1":{"event_count":3`, `"one":{"event_count":3`), want: `key "one" names no layer`},
		{name: "family's layers", content: swap(`"1":{"event_count":1`, `"5":{"event_count":1`), want: `"mmlu" has 2 layers, other than the 2 of all_workloads`},
		{name: "nothing", content: `{"all_workloads":{}}`, want: "give --layers", is: ErrNeedShape},
	})
}

func FuzzLocality(f *testing.F) {
	txFuzz(f, formLocality, "l.json", Options{Experts: 11}, localitySample)
}
