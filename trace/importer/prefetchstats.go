package importer

import (
	"cmp"
	"slices"

	"outrider/layout"
	"outrider/trace"
)

// formPrefetchStats is what llama-prefetch.cpp's expert tracer counts
// (LLAMA_EXPERT_TRACE_STATS=1, LLAMA_EXPERT_TRACE_OUTPUT). Experts that were never
// used are left out, and total_tokens counts uses, top-k for each token.
const formPrefetchStats = "llama-prefetch-stats"

type prefetchLayer struct {
	ID      *int    `json:"layer_id"`
	Total   float64 `json:"total_tokens"`
	Experts []struct {
		ID    int     `json:"expert_id"`
		Count float64 `json:"activations"`
	} `json:"experts"`
}

func sniffPrefetchStats(p *peek) bool {
	return p.hasPath("layers", listStep, "layer_id") && p.hasPath("layers", listStep, "total_tokens")
}

func openPrefetchStats(in *input) (*content, error) {
	f := in.files[0]
	var stats struct {
		Layers elements[prefetchLayer] `json:"layers"`
	}
	if err := f.decodeJSON(&stats); err != nil {
		return nil, err
	}
	for i, l := range stats.Layers {
		if l.ID == nil {
			return nil, f.damaged(place{}, "element %d of layers has no layer_id", i)
		}
	}
	slices.SortStableFunc(stats.Layers, func(a, b prefetchLayer) int { return cmp.Compare(*a.ID, *b.ID) })
	var ids []int
	var rows []tally
	for _, l := range stats.Layers {
		var row tally
		for _, e := range l.Experts {
			row.uses = append(row.uses, use{e.ID, e.Count})
		}
		if sum := row.total(); sum != l.Total {
			return nil, f.damaged(place{}, "layer %d: the experts have %v activations together, but total_tokens is %v", *l.ID, sum, l.Total)
		}
		ids, rows = append(ids, *l.ID), append(rows, row)
	}
	shape, err := in.counted(layout.Shape{Layers: len(ids), LayerIDs: blockNumbers(ids)})
	if err != nil {
		return nil, err
	}
	h, err := in.newHistogram(shape, 1)
	if err != nil {
		return nil, err
	}
	table, err := in.table("", ids, rows, shape.Experts)
	if err != nil {
		return nil, err
	}
	h.Unit, h.Source, h.Tables = unitTokens, in.sourceText(formPrefetchStats), []trace.Counts{table}
	return &content{histogram: h}, nil
}
