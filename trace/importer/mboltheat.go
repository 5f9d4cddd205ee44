package importer

import (
	"cmp"
	"slices"

	"outrider/layout"
	"outrider/trace"
)

// formMboltHeat is mbolt's co-activation profile: how many decoded tokens used each
// expert ("heat"), beside pairs and clusters that are left out here.
const formMboltHeat = "mbolt-coactivation"

type mboltProfile struct {
	Model   string `json:"model"`
	Quant   string `json:"quant"`
	Trace   string `json:"source_trace"`
	Layers  int    `json:"n_layers"`
	Experts int    `json:"n_expert_per_layer"`
	K       int    `json:"k"`
	Tokens  int    `json:"n_decode_tokens"`
	Rows    struct {
		Decode int `json:"decode_rows"`
	} `json:"profile_rows"`
	Profile elements[mboltLayer] `json:"layers"`
}

type mboltLayer struct {
	Layer    *int     `json:"layer"`     // of the model
	AbsLayer *int     `json:"abs_layer"` // the same, in later profiles
	Heat     countRow `json:"heat"`
}

func (l *mboltLayer) number() (int, bool) {
	n := cmp.Or(l.AbsLayer, l.Layer)
	if n == nil {
		return 0, false
	}
	return *n, true
}

func sniffMboltHeat(p *peek) bool {
	return has(p.keys(), "flat_index", "n_expert_per_layer", "total_experts")
}

func openMboltHeat(in *input) (*content, error) {
	f := in.files[0]
	var m mboltProfile
	if err := f.decodeJSON(&m); err != nil {
		return nil, err
	}
	if m.Layers != 0 && m.Layers != len(m.Profile) {
		return nil, f.damaged(place{}, "it has %d layers, but n_layers is %d", len(m.Profile), m.Layers)
	}
	ids, heat, err := m.heat(f)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, f.damaged(place{}, "it has no layers")
	}
	shape, err := in.counted(layout.Shape{Layers: len(ids), Experts: cmp.Or(m.Experts, len(heat[0])), TopK: m.K, LayerIDs: blockNumbers(ids)})
	if err != nil {
		return nil, err
	}
	h, err := in.newHistogram(shape, 1)
	if err != nil {
		return nil, err
	}
	h.Model, h.Unit, h.Source, h.Note = m.Model, unitTokens, in.sourceText(formMboltHeat), "decoded tokens only"
	if m.Quant != "" {
		h.Note += "; quantised as " + m.Quant
	}
	if m.Trace != "" {
		h.Note += "; from " + m.Trace
	}
	h.Tables = []trace.Counts{{Counts: heat}}
	in.note("Pairs, clusters and orders of experts were left out.")
	return &content{histogram: h}, nil
}

// heat is the layers' counts. Each decoded token used k experts in each layer,
// so they add up.
func (m *mboltProfile) heat(f *file) (ids []int, heat [][]float64, err error) {
	tokens := cmp.Or(m.Tokens, m.Rows.Decode)
	for i := range m.Profile {
		l := &m.Profile[i]
		id, ok := l.number()
		if !ok {
			return nil, nil, f.damaged(place{}, "element %d of layers has no layer or abs_layer", i)
		}
		sum := 0.0
		for _, n := range l.Heat {
			sum += n
		}
		if want := float64(m.K) * float64(tokens); want > 0 && sum != want {
			return nil, nil, f.damaged(place{}, "layer %d: heat counts %v uses, want %v: %d for each of %d tokens", id, sum, want, m.K, tokens)
		}
		ids, heat = append(ids, id), append(heat, l.Heat)
	}
	if !slices.IsSorted(ids) {
		return nil, nil, f.damaged(place{}, "the layers are not in ascending order")
	}
	return ids, heat, nil
}
