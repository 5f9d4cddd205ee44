package learned

import (
	"outrider/layout"
	"outrider/router"
)

// Recent is what the network knows of one sequence beside the online features: what
// its last token chose, and which layers of the pass are known.
type Recent struct {
	experts int
	pass    int64 // counts Begin
	told    bool  // the token of the pass, or a layer of it, is known
	width   int   // tokens of the pass as far as known, at least 1
	layers  []choice
}

// choice is the latest one of a layer.
type choice struct {
	pass    int64   // 0: never
	experts []int32 // of the last token, at most top-k
}

// NewRecent starts a sequence.
func NewRecent(shape layout.Shape) *Recent {
	r := &Recent{experts: shape.Experts, width: 1, layers: make([]choice, shape.Layers)}
	for l := range r.layers {
		r.layers[l].experts = make([]int32, 0, shape.TopK)
	}
	return r
}

// Begin starts a pass, as router.History does.
func (r *Recent) Begin(tokens []int32) {
	r.pass++
	r.told = len(tokens) > 0
	if r.told {
		r.width = len(tokens)
	}
}

// Observe tells a choice, as router.History does. Ids that the model does not
// have are left out.
func (r *Recent) Observe(layer int, choices []router.Choice) {
	if layer < 0 || layer >= len(r.layers) || len(choices) == 0 {
		return
	}
	r.told, r.width = true, len(choices)
	c := &r.layers[layer]
	c.pass = r.pass
	c.experts = c.experts[:0]
	for _, e := range choices[len(choices)-1].Experts {
		if uint(e) < uint(r.experts) && len(c.experts) < cap(c.experts) {
			c.experts = append(c.experts, e)
		}
	}
}

// Single reports whether passes are of one token, as far as is known.
func (r *Recent) Single() bool { return r.width == 1 }

// View is what is known for the forecast of a layer's next execution. The layer
// must exist; the slices are valid until the next call of Observe.
func (r *Recent) View(layer int) View {
	v := View{Again: r.layers[layer].experts}
	switch {
	case r.observed(layer):
	case r.observed(layer - 1):
		v.Horizon, v.Before = Near, r.layers[layer-1].experts
	case r.told:
		v.Horizon = Ahead
	}
	return v
}

// observed reports whether this pass has observed the layer.
func (r *Recent) observed(layer int) bool {
	return layer >= 0 && r.pass > 0 && r.layers[layer].pass == r.pass
}

// View is one forecast's inputs beside the columns.
type View struct {
	Horizon Horizon
	Before  []int32 // what the last token chose in the layer before, in this pass; nil unless Near
	Again   []int32 // what the sequence's last token chose in this layer
}
