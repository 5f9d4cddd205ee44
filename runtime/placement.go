package runtime

import (
	"fmt"

	"outrider/experts"
	"outrider/layout"
)

// SlotBytes is the memory that an expert of a layer takes, a multiple of 4096: what
// the budget is charged for it. The experts of a Stack lie StackStride apart.
func (rt *Runtime) SlotBytes(layer int) int64 { return rt.source.SlotBytes(layer) }

// Stack is the address range of all experts of a layer with PlacementFixed: expert
// i begins at i × StackStride(layer), and the range stays where it is for the whole
// run. nil with PlacementPooled, and for a layer that does not exist.
//
// Only the bytes of experts that the caller holds (Expert, from Ready until
// Release) may be read. What lies between is mapped but is no memory until an expert
// is read there: it reads as anything, and reading it may take memory that the budget
// does not count.
//
// A projection lies Tensor.At bytes from its expert's beginning; SlotOffsets tells
// where that is the same for all experts of a layer, so that each projection is one
// stacked tensor with StackStride as its stride.
//
// The slice is valid until the runtime is closed and the last use released.
func (rt *Runtime) Stack(layer int) []byte {
	if !rt.stacked(layer) {
		return nil
	}
	return rt.fixed.Stack(layer)
}

// StackStride is the bytes from the beginning of an expert of a layer's Stack to that
// of the next: a multiple of 4096, and no less than SlotBytes. 0 where Stack is nil.
// What lies between is address space only.
func (rt *Runtime) StackStride(layer int) int64 {
	if !rt.stacked(layer) {
		return 0
	}
	return rt.fixed.StackStride(layer)
}

func (rt *Runtime) stacked(layer int) bool {
	return rt.fixed != nil && layer >= 0 && layer < rt.shape.Layers
}

// Slots is the address range of all slots with PlacementPooled, and how far apart they
// begin: an expert lies in the slot of number
//
//	(address of its projection k - SlotOffsets(layer)[k] - address of base) / stride
//
// until it is released. A runner whose kernels take one matrix of many by number, as
// ggml's mul_mat_id does, takes the slots of all layers for one stack of matrices, and
// the slot's number in place of the expert's: nothing of the address space changes then
// when experts come and go. nil with PlacementFixed, and where there is no such range (on
// Linux only).
//
// Only the bytes of experts that the caller holds may be read. Slots that a budget above
// that of opening needs (SetBudget) lie elsewhere. The slice is valid until the runtime
// is closed and the last use released.
func (rt *Runtime) Slots() (base []byte, stride int64) {
	if rt.fixed != nil {
		return nil, 0
	}
	return rt.cache.Slots()
}

// SlotOffsets says where the projections of a layer's experts lie in a slot, in bytes
// from its beginning and in the order of Record, with either placement: projection k
// of expert i is at
//
//	Stack(layer)[i*StackStride(layer)+offsets[k]:][:Record(layer)[k].Bytes]
//
// with PlacementFixed, and in the slot that Slots tells how to number with PlacementPooled.
// It looks at all experts of the layer, so call it once a layer. It reads nothing.
//
// The error is an ErrNotStacked if they do not lie alike in all experts, which is so
// where direct reads need a larger alignment than the file gives each expert: in place,
// where the checkpoint's tensors do not begin on it; in a store, on a drive that demands
// more than the store's alignment. It is also an error for a layer that does not exist.
func (rt *Runtime) SlotOffsets(layer int) ([]int64, error) {
	if layer < 0 || layer >= rt.shape.Layers {
		return nil, fmt.Errorf("runtime: slot offsets: layer %d is outside the model's 0 to %d (MoE layers, in execution order)", layer, rt.shape.Layers-1)
	}
	var offsets []int64
	var p layout.Placement
	for i := range rt.shape.Experts {
		if err := rt.source.Locate(layout.ExpertID{Layer: int32(layer), Index: int32(i)}, &p); err != nil {
			return nil, fmt.Errorf("runtime: slot offsets: layer %d, expert %d: %w", layer, i, err)
		}
		if i == 0 {
			for _, part := range p.Parts {
				offsets = append(offsets, part.At)
			}
		}
		for k, part := range p.Parts {
			if part.At != offsets[k] {
				return nil, rt.unlike(layer, k, i, offsets[k], &p)
			}
		}
	}
	return offsets, nil
}

// unlike says that a projection of an expert lies elsewhere than that of expert 0.
func (rt *Runtime) unlike(layer, projection, expert int, first int64, p *layout.Placement) error {
	lane := rt.source.Lanes()[p.Reads[0].Lane]
	for _, r := range p.Reads {
		if at := p.Parts[projection].At; at >= r.At && at < r.At+r.Bytes {
			lane = rt.source.Lanes()[r.Lane]
		}
	}
	why, remedy := lane.Path+" does not have them alike", "build a store of it (outrider layout build)"
	if a := lane.File.Direct(); a != (layout.Alignment{}) {
		align := max(a.Memory, a.Offset)
		why = fmt.Sprintf("direct reads of %s begin at multiples of %d bytes, its experts do not", lane.Path, align)
		remedy = fmt.Sprintf("build a store of that alignment (outrider layout build --align %d), or open it Buffered", align)
	}
	return fmt.Errorf("runtime: slot offsets: layer %d: projection %q begins %d bytes into expert 0 and %d into expert %d, so that %w: %s; %s",
		layer, rt.source.Record(layer)[projection].Name, first, p.Parts[projection].At, expert, ErrNotStacked, why, remedy)
}

// newMemory is the memory that the placement asks for; nil leaves it to the cache.
func (o Options) newMemory(shape layout.Shape, slotBytes []int64) (experts.Stacked, error) {
	if o.Placement != PlacementFixed {
		return nil, nil
	}
	if o.Stacked != nil {
		return o.Stacked(shape, slotBytes)
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
