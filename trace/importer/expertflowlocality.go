package importer

import (
	"maps"
	"slices"

	"outrider/layout"
)

// formLocality is Expertflow's routing-locality.json: uses of each expert, over all
// workloads and for each family of them, beside results of its own simulation.
const formLocality = "expertflow-locality"

type localityFile struct {
	All      entries[localityLayer]          `json:"all_workloads"`
	Families entries[entries[localityLayer]] `json:"by_family"`
}

type localityLayer struct {
	Events    float64 `json:"event_count"`         // tokens
	Uses      float64 `json:"expert_demand_count"` // top-k for each
	Frequency tally   `json:"frequency"`
}

func sniffLocality(p *peek) bool {
	return p.hasPath("all_workloads", "*", "frequency") && p.hasPath("all_workloads", "*", "event_count")
}

func openLocality(in *input) (*content, error) {
	f := in.files[0]
	var m localityFile
	if err := f.decodeJSON(&m); err != nil {
		return nil, err
	}
	ids, all, topK, err := localityTable(f, "all_workloads", m.All)
	if err != nil {
		return nil, err
	}
	tables := entries[elements[tally]]{{"", all}}
	families, err := localityFamilies(f, m.Families, ids)
	if err != nil {
		return nil, err
	}
	switch {
	case len(families) > 0 && sumsUp(all, families):
		tables = families
	case len(families) > 0:
		in.note("The %d families of workloads do not add up to all of them; only all together are given.", len(families))
	}
	shape, err := in.counted(layout.Shape{Layers: len(ids), TopK: topK, LayerIDs: blockNumbers(ids)})
	if err != nil {
		return nil, err
	}
	h, err := in.talliedHistogram(shape, tables)
	if err != nil {
		return nil, err
	}
	h.Source = in.sourceText(formLocality)
	return &content{histogram: h}, nil
}

// localityTable reads one object of layers, and top-k if all layers agree on
// it.
func localityTable(f *file, name string, object entries[localityLayer]) (ids []int, rows elements[tally], topK int, err error) {
	for i, e := range object {
		l := &object[i].value
		if sum := l.Frequency.total(); sum != l.Uses {
			return nil, nil, 0, f.damaged(place{}, "%s, layer %.20s: frequency counts %v uses, but expert_demand_count is %v", name, e.key, sum, l.Uses)
		}
		switch k := l.Uses / l.Events; {
		case i == 0 && k >= 1 && k <= layout.MaxExperts && k == float64(int(k)):
			topK = int(k)
		case l.Uses != float64(topK)*l.Events:
			topK = 0
		}
	}
	ids, rows, err = layerTallies(f, object, func(l localityLayer) tally { return l.Frequency })
	return ids, rows, topK, err
}

func localityFamilies(f *file, families entries[entries[localityLayer]], ids []int) (tables entries[elements[tally]], err error) {
	for _, family := range families {
		layers, rows, _, err := localityTable(f, family.key, family.value)
		if err != nil {
			return nil, err
		}
		if !slices.Equal(layers, ids) {
			return nil, f.damaged(place{}, "%.80q has %d layers, other than the %d of all_workloads", family.key, len(layers), len(ids))
		}
		tables = append(tables, entry[elements[tally]]{family.key, rows})
	}
	return tables, nil
}

// sumsUp reports whether the tables add up to all.
func sumsUp(all elements[tally], tables entries[elements[tally]]) bool {
	for l := range all {
		sum, want := map[int]float64{}, map[int]float64{}
		for _, t := range tables {
			for _, u := range t.value[l].uses {
				sum[u.expert] += u.count
			}
		}
		for _, u := range all[l].uses {
			want[u.expert] += u.count
		}
		if !maps.Equal(sum, want) {
			return false
		}
	}
	return true
}
