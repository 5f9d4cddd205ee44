package runtime

import (
	"outrider/layout"
	"outrider/router"
)

// hashed knows the layers whose experts the token's number alone decides. What
// they use is certain as soon as a pass's tokens are told, and goes the way of
// hints, which are soon believed where they are always right. Of the forecaster's
// goroutine alone.
type hashed struct {
	routers *layout.Routers
	layers  []int               // that have a table
	tables  []*layout.HashTable // of layers; nil until first needed
	certain []float32           // the probability 1 for each of top-k experts
}

func newHashed(r *layout.Routers, shape layout.Shape) *hashed {
	h := &hashed{routers: r}
	for l := range r.Layers {
		if r.Layers[l].Hash.Type != "" {
			h.layers = append(h.layers, l)
		}
	}
	h.tables = make([]*layout.HashTable, len(h.layers))
	for range shape.TopK {
		h.certain = append(h.certain, 1)
	}
	return h
}

// tell hints what a pass that has just begun uses in those layers. A table that
// cannot be loaded ends it: the layers are then forecast as all others are.
func (h *hashed) tell(rt *Runtime, q *router.Sequence, tokens []int32) {
	if h == nil || len(tokens) == 0 {
		return
	}
	for i, layer := range h.layers {
		if h.tables[i] == nil {
			table, err := h.routers.Table(layer)
			if err != nil {
				rt.log.Warn("experts are not told by their tokens: a table cannot be loaded", "layer", layer, "error", err)
				h.layers = nil
				return
			}
			h.tables[i] = table
		}
		for _, token := range tokens {
			if ids := h.tables[i].Experts(token); ids != nil {
				q.Hint(-1, layer, ids, h.certain)
			}
		}
	}
}
