package importer

import (
	"cmp"
	"slices"

	"outrider/layout"
)

// formFlashProfile is the profile of flash-moe (mlx-moe): how many prompts used
// each expert at least once.
const formFlashProfile = "flash-moe-profile"

type flashProfile struct {
	Model   string               `json:"model"`
	Prompts int                  `json:"num_prompts"`
	Experts int                  `json:"num_experts"`
	Layers  int                  `json:"moe_layers"`
	Profile entries[flashCounts] `json:"layers"`
}

type flashCounts struct {
	Counts tally `json:"activation_counts"`
}

func sniffFlashProfile(p *peek) bool {
	return has(p.keys(), "num_prompts", "num_experts", "moe_layers") && p.hasPath("layers", "*", "activation_counts")
}

func openFlashProfile(in *input) (*content, error) {
	f := in.files[0]
	var m flashProfile
	if err := f.decodeJSON(&m); err != nil {
		return nil, err
	}
	if m.Layers != len(m.Profile) {
		return nil, f.damaged(place{}, "it has %d layers, but moe_layers is %d", len(m.Profile), m.Layers)
	}
	ids, rows, err := layerTallies(f, m.Profile, func(c flashCounts) tally { return c.Counts })
	if err != nil {
		return nil, err
	}
	for l, row := range rows {
		for _, u := range row.uses {
			if u.count > float64(m.Prompts) {
				return nil, f.damaged(place{}, "layer %d: expert %d was used by %v prompts of %d", ids[l], u.expert, u.count, m.Prompts)
			}
		}
	}
	shape, err := in.counted(layout.Shape{Layers: len(ids), Experts: m.Experts, LayerIDs: blockNumbers(ids)})
	if err != nil {
		return nil, err
	}
	h, err := in.talliedHistogram(shape, entries[elements[tally]]{{"", rows}})
	if err != nil {
		return nil, err
	}
	h.Model, h.Unit, h.Source = m.Model, unitPrompts, in.sourceText(formFlashProfile)
	in.note("The counts are of prompts that used an expert at all (%d prompts), not of tokens.", m.Prompts)
	return &content{histogram: h}, nil
}

// layerTallies sorts an object of layers by their numbers, which are its keys.
func layerTallies[T any](f *file, object entries[T], counts func(T) tally) (ids []int, rows elements[tally], err error) {
	if len(object) > layout.MaxLayers {
		return nil, nil, f.damaged(place{}, "it has %d layers, want at most %d", len(object), layout.MaxLayers)
	}
	type layer struct {
		id  int
		row tally
	}
	var layers []layer
	for _, e := range object {
		id, err := layerNumber(e.key)
		if err != nil {
			return nil, nil, f.damaged(place{}, "%v", err)
		}
		layers = append(layers, layer{id, counts(e.value)})
	}
	slices.SortFunc(layers, func(a, b layer) int { return cmp.Compare(a.id, b.id) })
	for _, l := range layers {
		ids, rows = append(ids, l.id), append(rows, l.row)
	}
	return ids, rows, nil
}
