package stream

import (
	"fmt"
	"unsafe"

	"outrider/runtime"
)

// slots numbers the slots that experts of all layers share.
type slots struct {
	base   uintptr
	bytes  int64
	stride int64
	first  []int64 // by layer: where the first projection lies in a slot
}

// newSlots is nil where experts have an address each.
func newSlots(rt *runtime.Runtime) (*slots, error) {
	base, stride := rt.Slots()
	if base == nil {
		return nil, nil
	}
	s := &slots{base: uintptr(unsafe.Pointer(unsafe.SliceData(base))), bytes: int64(len(base)), stride: stride}
	for l := range rt.Shape().Layers {
		at, err := rt.SlotOffsets(l)
		if err != nil {
			return nil, err
		}
		s.first = append(s.first, at[0])
	}
	return s, nil
}

// number is that of the slot in which an expert lies.
func (s *slots) number(ex runtime.Expert) (int32, error) {
	p, ok := ex.At(0)
	if !ok {
		return 0, runtime.ErrReleased
	}
	at := int64(uintptr(unsafe.Pointer(unsafe.SliceData(p.Data)))-s.base) - s.first[ex.ID().Layer]
	if at < 0 || at >= s.bytes || at%s.stride != 0 {
		return 0, fmt.Errorf("expert %v lies outside the slots that the budget had when the model was opened", ex.ID())
	}
	return int32(at / s.stride), nil
}
