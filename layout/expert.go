package layout

import "fmt"

// Limits of a shape. They exist so that a damaged or hostile file cannot make
// a reader allocate without bound.
const (
	MaxLayers  = 4096
	MaxExperts = 65536
	MaxRecords = 1 << 24
)

// ExpertID names one routed expert: the feed-forward block Index of MoE layer
// Layer. Layer counts the MoE layers in execution order from 0; it is not the
// model's own block number (see Shape.LayerIDs).
type ExpertID struct {
	Layer, Index int32
}

// String formats the id for messages: "layer 3 expert 17".
func (e ExpertID) String() string {
	return fmt.Sprintf("layer %d expert %d", e.Layer, e.Index)
}

// Shape says how many experts a model has and how many of them a token uses.
type Shape struct {
	Layers  int // MoE layers, in execution order
	Experts int // routed experts of a layer
	TopK    int // experts that the router chooses for one token in one layer

	// LayerIDs holds the model's own block number of each MoE layer, ascending;
	// nil means 0, 1, … Layers-1. Models with dense first layers need it.
	LayerIDs []int `json:",omitempty"`
}

// Validate reports the first way in which the shape is not one a model can have.
func (s Shape) Validate() error {
	switch {
	case s.Layers < 1 || s.Layers > MaxLayers:
		return fmt.Errorf("layout: shape has %d layers, want 1 to %d", s.Layers, MaxLayers)
	case s.Experts < 1 || s.Experts > MaxExperts:
		return fmt.Errorf("layout: shape has %d experts a layer, want 1 to %d", s.Experts, MaxExperts)
	case s.Layers*s.Experts > MaxRecords:
		return fmt.Errorf("layout: shape has %d experts in all, want at most %d", s.Layers*s.Experts, MaxRecords)
	case s.TopK < 1 || s.TopK > s.Experts:
		return fmt.Errorf("layout: shape has top-k %d, want 1 to %d", s.TopK, s.Experts)
	case s.LayerIDs != nil && len(s.LayerIDs) != s.Layers:
		return fmt.Errorf("layout: shape names %d layers, but has %d", len(s.LayerIDs), s.Layers)
	}
	for i, id := range s.LayerIDs {
		if id < 0 || (i > 0 && id <= s.LayerIDs[i-1]) {
			return fmt.Errorf("layout: shape's layer ids are not ascending at %d (block %d)", i, id)
		}
	}
	return nil
}

// Count is the number of experts in all layers.
func (s Shape) Count() int { return s.Layers * s.Experts }

// Contains reports whether the shape has this expert.
func (s Shape) Contains(e ExpertID) bool {
	return e.Layer >= 0 && int(e.Layer) < s.Layers && e.Index >= 0 && int(e.Index) < s.Experts
}

// Ordinal numbers the experts layer by layer, 0 to Count()-1. The id must be
// one that the shape contains.
func (s Shape) Ordinal(e ExpertID) int { return int(e.Layer)*s.Experts + int(e.Index) }

// ID is the inverse of Ordinal.
func (s Shape) ID(ordinal int) ExpertID {
	return ExpertID{Layer: int32(ordinal / s.Experts), Index: int32(ordinal % s.Experts)}
}

// LayerID is the model's own block number of an MoE layer.
func (s Shape) LayerID(layer int) int {
	if s.LayerIDs == nil {
		return layer
	}
	return s.LayerIDs[layer]
}

// SameSize reports whether both have as many layers, experts and chosen experts,
// whatever block numbers their layers have.
func (s Shape) SameSize(t Shape) bool {
	return s.Layers == t.Layers && s.Experts == t.Experts && s.TopK == t.TopK
}

// Equal reports whether two shapes are the same, nil LayerIDs meaning 0, 1, ….
func (s Shape) Equal(t Shape) bool {
	if !s.SameSize(t) {
		return false
	}
	for l := range s.Layers {
		if s.LayerID(l) != t.LayerID(l) {
			return false
		}
	}
	return true
}
