package importer

import (
	"fmt"

	"outrider/layout"
	"outrider/trace"
)

// block gathers the rows of one pass or one sequence where a form keeps its
// layers apart, until all of its tokens can be told.
type block struct {
	topK    int
	ids     [][]int32 // by layer: topK ids a row, filled up with -1
	weights [][]float32
	held    int
}

func newBlock(shape layout.Shape, weights bool) *block {
	b := &block{topK: shape.TopK, ids: make([][]int32, shape.Layers)}
	if weights {
		b.weights = make([][]float32, shape.Layers)
	}
	return b
}

// reset empties the block and keeps its memory.
func (b *block) reset() {
	b.held = 0
	for l := range b.ids {
		b.ids[l] = b.ids[l][:0]
		if b.weights != nil {
			b.weights[l] = b.weights[l][:0]
		}
	}
}

// add appends one token's row to a layer; a row may have fewer than top-k ids.
func (b *block) add(layer int, ids []int32, weights []float32) error {
	if layer < 0 || layer >= len(b.ids) {
		return fmt.Errorf("layer %d is outside the model's %d", layer, len(b.ids))
	}
	if len(ids) > b.topK {
		return fmt.Errorf("layer %d: the row has %d experts, want at most top-k %d", layer, len(ids), b.topK)
	}
	if b.weights != nil && len(weights) != len(ids) {
		return fmt.Errorf("layer %d: the row has %d experts but %d gate weights", layer, len(ids), len(weights))
	}
	if b.held += b.topK; b.held > MaxHeld {
		return fmt.Errorf("the layers of a sequence lie apart, and this one has more than %d expert ids: split the file", MaxHeld)
	}
	b.ids[layer] = append(b.ids[layer], ids...)
	for range b.topK - len(ids) {
		b.ids[layer] = append(b.ids[layer], -1)
	}
	if b.weights != nil {
		b.weights[layer] = append(b.weights[layer], weights...)
		b.weights[layer] = append(b.weights[layer], make([]float32, b.topK-len(ids))...)
	}
	return nil
}

// rows is how many rows a layer has.
func (b *block) rows(layer int) int { return len(b.ids[layer]) / b.topK }

// tokens is how many tokens the block has; it is an error if a layer has another
// number of rows than the first.
func (b *block) tokens() (int, error) {
	n := b.rows(0)
	for l := range b.ids {
		if b.rows(l) != n {
			return 0, fmt.Errorf("layer %d has %d rows, but layer 0 has %d: ragged", l, b.rows(l), n)
		}
	}
	return n, nil
}

// longest is how many tokens the block has if layers may lack rows at the end.
func (b *block) longest() (n int) {
	for l := range b.ids {
		n = max(n, b.rows(l))
	}
	return n
}

// token writes the choice of token i of all layers into a; a layer that has no
// such row chose nothing.
func (b *block) token(i int, a *trace.Activation) {
	a.Experts, a.Weights = a.Experts[:0], a.Weights[:0]
	for l := range b.ids {
		have := i < b.rows(l)
		for k := range b.topK {
			id, weight := int32(-1), float32(0)
			if have {
				id = b.ids[l][i*b.topK+k]
				if b.weights != nil {
					weight = b.weights[l][i*b.topK+k]
				}
			}
			a.Experts = append(a.Experts, id)
			if b.weights != nil {
				a.Weights = append(a.Weights, weight)
			}
		}
	}
}
