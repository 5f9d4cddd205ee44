package safetensors

import (
	"cmp"
	"slices"
)

// place makes offsets absolute and checks that the tensors fill the data.
func (f *File) place(start int64) error {
	order := make([]*Tensor, len(f.tensors))
	room := f.source.Size - start
	for i := range f.tensors {
		t := &f.tensors[i]
		order[i] = t
		// The sum is the end that the header told: it cannot overflow.
		if end := t.Offset + t.Bytes; end > room {
			return f.wrong(ErrTruncated, -1, "tensor %q ends at byte %d of the data, which has %d: %d bytes are missing; get the file again", t.Name, end, room, end-room)
		}
		t.Offset += start
	}
	slices.SortFunc(order, func(a, b *Tensor) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Bytes, b.Bytes))
	})
	end, before := start, "the header"
	for _, t := range order {
		switch {
		case t.Offset < end:
			return f.wrong(ErrDamaged, t.Offset, "tensor %q overlaps %s", t.Name, before)
		case t.Offset > end:
			return f.wrong(ErrDamaged, end, "%d bytes between %s and tensor %q belong to nothing", t.Offset-end, before, t.Name)
		}
		end, before = t.Offset+t.Bytes, "tensor \""+t.Name+"\""
	}
	if end != f.source.Size {
		return f.wrong(ErrDamaged, end, "%d bytes behind %s belong to nothing", f.source.Size-end, before)
	}
	return nil
}
