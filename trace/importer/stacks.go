package importer

import (
	"fmt"
	"maps"
	"slices"

	"outrider/layout"
	"outrider/trace"
)

// stacks gathers counts of forward passes that come layer by layer, for each stack of
// layers (an encoder, a decoder) apart, and turns them into a table for each pass.
type stacks struct {
	order []string
	all   map[string]*stack
}

type stack struct {
	passes []int               // their numbers
	rows   map[int][][]float64 // by layer number: a row a pass
}

func newStacks() *stacks { return &stacks{all: map[string]*stack{}} }

// add takes the passes of one layer; all layers of a stack have the same.
func (s *stacks) add(name string, layer int, passes []int, rows [][]float64) error {
	st := s.all[name]
	if st == nil {
		st = &stack{passes: passes, rows: map[int][][]float64{}}
		s.all[name], s.order = st, append(s.order, name)
	}
	switch {
	case st.rows[layer] != nil:
		return fmt.Errorf("layer %d of the %s is there twice", layer, name)
	case !slices.Equal(st.passes, passes):
		return fmt.Errorf("layer %d of the %s has other passes (%d) than the layer before it (%d)", layer, name, len(passes), len(st.passes))
	case len(rows) == 0:
		return fmt.Errorf("layer %d of the %s has no passes", layer, name)
	case len(st.rows) == layout.MaxLayers:
		return fmt.Errorf("the %s has more than %d layers", name, layout.MaxLayers)
	}
	st.rows[layer] = rows
	return nil
}

// tables is a table for each pass of each stack, and the layers' numbers, which must be the
// same in all stacks: a histogram has one shape. Unit is what a pass is called.
func (s *stacks) tables(unit string) (ids []int, tables []trace.Counts, err error) {
	for _, name := range s.order {
		st := s.all[name]
		layers := slices.Sorted(maps.Keys(st.rows))
		if ids == nil {
			ids = layers
		}
		if !slices.Equal(ids, layers) {
			return nil, nil, fmt.Errorf("the %s has layers %v, but the %s has %v: import them one by one", name, layers, s.order[0], ids)
		}
		for i, pass := range st.passes {
			t := trace.Counts{Label: fmt.Sprintf("%s %s %d", name, unit, pass)}
			for _, layer := range layers {
				t.Counts = append(t.Counts, st.rows[layer][i])
			}
			tables = append(tables, t)
		}
	}
	if len(tables) == 0 {
		return nil, nil, fmt.Errorf("there are no passes")
	}
	return ids, tables, nil
}
