package importer

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider/trace"
)

// Layers come in the order of the writer's map.
const prefetchStatsSample = `{
  "layers": [
    {
      "layer_id": 3,
      "total_tokens": 6,
      "experts": [
        {"expert_id": 1, "activations": 4, "percentage": 66.6667},
        {"expert_id": 2, "activations": 2, "percentage": 33.3333}
      ]
    },
    {
      "layer_id": 1,
      "total_tokens": 6,
      "experts": [
        {"expert_id": 0, "activations": 6, "percentage": 100}
      ]
    }
  ]
}
`

func TestPrefetchStats(t *testing.T) {
	i := txOpen(t, formPrefetchStats, Options{Experts: 4, Model: "m"}, txFile(t, "expert_stats.json", prefetchStatsSample))
	want := &trace.Histogram{
		Model: "m", Layers: 2, LayerIDs: []int{1, 3}, Experts: 4, Unit: "tokens", Source: "imported from llama-prefetch-stats: expert_stats.json",
		Tables: []trace.Counts{{Counts: [][]float64{{6, 0, 0, 0}, {0, 4, 2, 0}}}},
	}
	if diff := cmp.Diff(want, i.Histogram); diff != "" {
		t.Errorf("histogram (-want +got):\n%s", diff)
	}
}

func TestPrefetchStatsDamage(t *testing.T) {
	ok, o := prefetchStatsSample, Options{Experts: 4}
	swap := func(old, new string) string { return strings.Replace(ok, old, new, 1) }
	txRunDamage(t, formPrefetchStats, "stats.json", o, []txDamage{
		{name: "cut", content: ok[:len(ok)/2], want: "it is not JSON: unexpected end of JSON input"},
		{name: "not JSON", content: swap(`"layers":`, `"layers"`), want: "damaged at byte 14: it is not JSON"},
		{name: "other kind", content: swap(`"activations": 4`, `"activations": "4"`), want: "cannot unmarshal string"},
		{name: "no list", content: `{"layers": {}}`, want: "want a list"},
		{name: "no layers", content: `{"layers": []}`, want: "give --layers", is: ErrNeedShape},
		{name: "no layer", content: swap(`"layer_id": 1,`, ``), want: "element 1 of layers has no layer_id"},
		{name: "wrong count", content: swap(`"total_tokens": 6`, `"total_tokens": 7`), want: "layer 3: the experts have 6 activations together, but total_tokens is 7"},
		{name: "layer twice", content: swap(`"layer_id": 3`, `"layer_id": 1`), want: "not ascending"},
		{name: "outside", content: swap(`"expert_id": 2`, `"expert_id": 4`), want: "layer 3: expert 4 is outside 0 to 3"},
		{name: "negative id", content: swap(`"expert_id": 2`, `"expert_id": -2`), want: "layer 3: expert -2 is outside 0 to 3"},
		{name: "expert twice", content: swap(`"expert_id": 2`, `"expert_id": 1`), want: "layer 3: expert 1 is counted twice"},
		{name: "negative count", content: strings.NewReplacer(`"activations": 4`, `"activations": -4`, `"total_tokens": 6`, `"total_tokens": -2`).Replace(swap(`"activations": 6`, `"activations": -2`)), want: "want a number of 0 or more"},
	})
}

func FuzzPrefetchStats(f *testing.F) {
	txFuzz(f, formPrefetchStats, "stats.json", Options{Experts: 4}, prefetchStatsSample)
}
