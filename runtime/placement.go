package runtime

import (
	"fmt"

	"outrider/experts"
	"outrider/layout"
)

// SlotBytes is the memory that an expert of a layer takes, a multiple of 4096: what
// the budget is charged for it, and how far apart the experts of a Stack lie.
func (rt *Runtime) SlotBytes(layer int) int64 { return rt.source.SlotBytes(layer) }

// Stack is the address range of all experts of a layer with PlacementFixed: expert
// i begins at i × SlotBytes(layer), and the range stays where it is for the whole
// run. nil with PlacementPooled, and for a layer that does not exist.
//
// Only the bytes of experts that the caller holds (Expert, from Ready until
// Release) may be read. What lies between is no memory until an expert is read
// there: it reads as zeros, or as what an expert is being read into at the moment.
//
// A projection lies Tensor.At bytes from its expert's beginning. For a store that
// is the same for all experts of a layer (so the projections make one stacked
// tensor, with SlotBytes as its stride), unless a drive demands reads of more than
// the store's alignment. In place it differs from expert to expert where the
// checkpoint's tensors do not begin at the alignment of direct reads: copy the
// model into a store, or open it Buffered.
//
// The slice is valid until the runtime is closed and the last use released.
func (rt *Runtime) Stack(layer int) []byte {
	if rt.fixed == nil || layer < 0 || layer >= rt.shape.Layers {
		return nil
	}
	return rt.fixed.Stack(layer)
}

// newMemory is the memory that the placement asks for; nil leaves it to the cache.
func (o Options) newMemory(shape layout.Shape, slotBytes []int64) (*experts.FixedMemory, error) {
	if o.Placement != PlacementFixed {
		return nil, nil
	}
	fixed, err := experts.NewFixedMemory(shape, slotBytes)
	if err != nil {
		return nil, fmt.Errorf("runtime: placement: %w", err)
	}
	return fixed, nil
}

// text is the word for the log.
func (p Placement) text() string {
	if p == PlacementFixed {
		return "fixed"
	}
	return "pooled"
}
