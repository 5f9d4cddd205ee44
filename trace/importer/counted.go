package importer

import (
	"fmt"

	"outrider/layout"
	"outrider/trace"
)

// counted is the shape of counts: as input.shape, but top-k may stay 0
// (unknown), since counts can be read without it.
func (in *input) counted(told layout.Shape) (layout.Shape, error) {
	unknown := told.TopK == 0 && in.opts.TopK == 0
	if unknown {
		told.TopK = 1
	}
	s, err := in.shape(told)
	if err != nil {
		return s, err
	}
	if unknown {
		s.TopK = 0
	}
	if ids := in.opts.LayerIDs; s.LayerIDs == nil && ids != nil {
		if len(ids) != s.Layers {
			return s, fmt.Errorf("%s: %d layer ids were given, but the data has %d layers", in.files[0].path, len(ids), s.Layers)
		}
		s.LayerIDs = ids
	}
	return s, nil
}

// newHistogram starts a histogram of tables; what they will hold is bounded here,
// before anything is allocated.
func (in *input) newHistogram(s layout.Shape, tables int) (*trace.Histogram, error) {
	if n := int64(tables) * int64(s.Count()); n > trace.MaxHistogram {
		return nil, in.files[0].damaged(place{}, "%d tables of %d layers and %d experts are %d counts, want at most %d", tables, s.Layers, s.Experts, n, trace.MaxHistogram)
	}
	return &trace.Histogram{Layers: s.Layers, LayerIDs: s.LayerIDs, Experts: s.Experts, TopK: s.TopK}, nil
}

// blockNumbers are layer ids as a shape has them: nil where they are 0, 1, 2, …
func blockNumbers(ids []int) []int {
	for i, id := range ids {
		if id != i {
			return ids
		}
	}
	return nil
}

// Units of histograms.
const (
	unitTokens  = "tokens"
	unitShare   = "share of tokens"
	unitPrompts = "prompts"
)

// table makes a table of tallies, one a layer. Ids are the layers' numbers, for
// messages.
func (in *input) table(label string, ids []int, rows []tally, experts int) (trace.Counts, error) {
	t := trace.Counts{Label: label}
	for l := range rows {
		row, err := rows[l].row(experts)
		if err != nil {
			if label != "" {
				label = fmt.Sprintf("table %q, ", label)
			}
			return t, in.files[0].damaged(place{}, "%slayer %d: %v", label, ids[l], err)
		}
		t.Counts = append(t.Counts, row)
	}
	return t, nil
}
