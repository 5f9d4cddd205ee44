package layout

import "fmt"

// Limits of the format. They keep every sum of offsets within an int64, and
// bound what a reader allocates for a file that a stranger wrote.
const (
	MinAlign       = 512
	MaxAlign       = 2 << 20
	MaxLanes       = 64
	MaxProjections = 64
	MaxRecordBytes = 1 << 36
	MaxLaneBytes   = 1 << 46
)

// Rules of the format for what lies inside a record.
const (
	bigProjection  = 256 << 10 // from this size on a projection starts aligned
	smallAlign     = 64        // all others start on a multiple of this
	unitBytes      = 256 << 10 // the least piece of a record that is cut over lanes
	cutAlign       = 4096      // cuts are multiples of this, or of the alignment if larger
	laneAlign      = 4096      // a lane's size is a multiple of this
	placementAlign = 4096      // Placement.Bytes is a multiple of this
)

// Form is the inner order of a record: which projections it holds, and where.
// Layers whose experts have the same projections share a form; models of mixed
// precision have several.
type Form struct {
	// Align is the multiple on which records of this form start, and of which
	// Bytes is one.
	Align       int64            `json:"align"`
	Bytes       int64            `json:"bytes"` // of a whole record, padding included
	Projections []FormProjection `json:"projections"`
}

// FormProjection is a projection and where it starts in its record.
type FormProjection struct {
	Projection
	Offset int64 `json:"offset"`
}

// DataBytes is what a record of this form holds without padding.
func (f *Form) DataBytes() int64 {
	var n int64
	for i := range f.Projections {
		n += f.Projections[i].Bytes
	}
	return n
}

// newForm places projections one after the other. With cut, the record may be
// cut over several lanes if it is long enough, which needs a larger alignment.
func newForm(projections []Projection, align int64, cut bool) Form {
	form := Form{Align: align, Projections: make([]FormProjection, len(projections))}
	if form.place(projections); cut && form.Bytes >= 2*unitBytes && align < cutAlign {
		form.Align = cutAlign
		form.place(projections)
	}
	return form
}

func (f *Form) place(projections []Projection) {
	var end int64
	for i, p := range projections {
		start := alignUp(end, smallAlign)
		if p.Bytes >= bigProjection {
			start = alignUp(end, f.Align)
		}
		f.Projections[i] = FormProjection{Projection: p, Offset: start}
		end = start + p.Bytes
	}
	f.Bytes = alignUp(end, f.Align)
}

// check reports the first way in which a form breaks the format.
func (f *Form) check() error {
	switch {
	case !isPowerOfTwo(f.Align) || f.Align < MinAlign || f.Align > MaxAlign:
		return fmt.Errorf("alignment is %d, want a power of two from %d to %d", f.Align, MinAlign, MaxAlign)
	case f.Bytes <= 0 || f.Bytes > MaxRecordBytes || f.Bytes%f.Align != 0:
		return fmt.Errorf("record has %d bytes, want a multiple of %d up to %d", f.Bytes, f.Align, int64(MaxRecordBytes))
	case len(f.Projections) < 1 || len(f.Projections) > MaxProjections:
		return fmt.Errorf("record has %d projections, want 1 to %d", len(f.Projections), MaxProjections)
	}
	names := make(map[string]bool, len(f.Projections))
	var end int64
	for i := range f.Projections {
		p := &f.Projections[i]
		if p.Name == "" || names[p.Name] {
			return fmt.Errorf("projection %d has no name of its own: %q", i, p.Name)
		}
		names[p.Name] = true
		if p.Bytes <= 0 || p.Bytes > f.Bytes {
			return fmt.Errorf("projection %s has %d bytes in a record of %d", p.Name, p.Bytes, f.Bytes)
		}
		need := int64(smallAlign)
		if p.Bytes >= bigProjection {
			need = f.Align
		}
		if p.Offset < end || p.Offset > f.Bytes-p.Bytes || p.Offset%need != 0 {
			return fmt.Errorf("projection %s starts at %d, want a multiple of %d from %d to %d",
				p.Name, p.Offset, need, end, f.Bytes-p.Bytes)
		}
		end = p.Offset + p.Bytes
	}
	return nil
}

// record lists a form's projections as Source.Record hands them out.
func (f *Form) record() []Projection {
	out := make([]Projection, len(f.Projections))
	for i := range f.Projections {
		out[i] = f.Projections[i].Projection
	}
	return out
}
