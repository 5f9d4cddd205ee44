package importer

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"outrider/layout"
	"outrider/trace"
)

// errEnough ends a reading that has learnt what it was for.
var errEnough = errors.New("enough")

// survey is what a first reading learns where a form names layer and experts in
// each row, and the shape of the whole nowhere.
type survey struct {
	numbers  map[int]bool // the layers' own numbers
	width    int          // ids in the first row that has any
	groups   int64        // passes or sequences begun
	rows     int64
	weighted int64 // rows with gate weights, as many as ids
	bare     int64 // rows with ids, but without weights
	unranked bool  // some row's weights rise
}

// row counts one row.
func (s *survey) row(layer, ids int, weights []float32) error {
	if layer < 0 {
		return fmt.Errorf("the row names no layer of 0 or more")
	}
	if !s.numbers[layer] {
		if len(s.numbers) == layout.MaxLayers {
			return fmt.Errorf("layer %d is one more than the %d layers that a model may have", layer, layout.MaxLayers)
		}
		if s.numbers == nil {
			s.numbers = map[int]bool{}
		}
		s.numbers[layer] = true
	}
	if s.width == 0 {
		s.width = ids
	}
	s.rows++
	switch {
	case ids == 0:
	case len(weights) == ids:
		s.weighted++
	default:
		s.bare++
	}
	for i := 1; i < len(weights); i++ {
		s.unranked = s.unranked || weights[i] > weights[i-1]
	}
	return nil
}

// header is the header of a trace with the rows seen, and the ordinal of each
// layer's number. What the form tells of the shape goes into told; the layers
// are those that were seen, top-k is the width of the first row. Failed is how
// the reading ended: if not even one pass or sequence was whole, so that layers
// may be missing, it is the answer, else it will come again after the tokens.
func (s *survey) header(in *input, form string, told layout.Shape, failed error) (trace.Header, map[int]int, error) {
	if failed != nil && s.groups < 2 && (s.rows == 0 || len(s.numbers) != in.opts.Layers) {
		return trace.Header{}, nil, failed
	}
	if s.rows == 0 || s.width == 0 {
		return trace.Header{}, nil, in.files[0].damaged(place{}, "it holds no row of expert ids")
	}
	told.Layers = len(s.numbers)
	if told.TopK == 0 {
		told.TopK = s.width
	}
	shape, err := in.shape(told)
	if err != nil {
		return trace.Header{}, nil, err
	}
	h := trace.Header{Shape: shape, Source: in.sourceText(form), Weights: s.bare == 0}
	numbers := slices.Sorted(maps.Keys(s.numbers))
	if numbers[len(numbers)-1] != len(numbers)-1 {
		h.Shape.LayerIDs = numbers
	}
	if h.Weights {
		h.Ranked = trace.FactOf(!s.unranked)
	} else if s.weighted > 0 {
		in.note("%d of %d rows have no gate weights; those of the others were left out.", s.bare, s.rows)
	}
	return h, ordinals(numbers), nil
}

// ordinals are the places of numbers in their order.
func ordinals(numbers []int) map[int]int {
	index := make(map[int]int, len(numbers))
	for l, number := range numbers {
		index[number] = l
	}
	return index
}

// countTo is 0, 1, … n-1: the numbers of layers that have none of their own.
func countTo(n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}
