package layout

// InPlace serves experts straight from a checkpoint's files: one read for each
// projection, no copy on disk, no checksums. It is what a store is measured
// against. Safe for concurrent use.
type InPlace struct {
	fsys    FS
	cp      Checkpoint
	open    laneSet
	aligns  []int64
	records [][]Projection
	slots   []int64
}

var _ Source = (*InPlace)(nil)

// OpenInPlace opens the files of a checkpoint with the given mode. The
// description stays shared with the caller, who does not change it any more.
// The error is an ErrCheckpoint for a description that contradicts itself, and
// an ErrSourceChanged for a file of another size.
func OpenInPlace(fsys FS, cp Checkpoint, mode Mode) (*InPlace, error) {
	if err := cp.Validate(); err != nil {
		return nil, err
	}
	files, err := cp.openFiles(fsys, mode)
	if err != nil {
		return nil, err
	}
	s := &InPlace{fsys: fsys, cp: cp}
	for i, f := range files {
		s.open.lanes = append(s.open.lanes, Lane{Path: cp.Files[i].Path, File: f})
		s.aligns = append(s.aligns, f.Direct().span())
	}
	s.records = make([][]Projection, cp.Shape.Layers)
	s.slots = make([]int64, cp.Shape.Layers)
	var p Placement
	for l := range s.records {
		s.records[l] = cp.Layers[l].projections()
		for e := range cp.Shape.Experts {
			s.place(ExpertID{Layer: int32(l), Index: int32(e)}, &p)
			s.slots[l] = max(s.slots[l], p.Bytes)
		}
	}
	return s, nil
}

// Shape says how many layers and experts the checkpoint has.
func (s *InPlace) Shape() Shape { return s.cp.Shape }

// Lanes are the checkpoint's open files; they belong to the source.
func (s *InPlace) Lanes() []Lane { return s.open.lanes }

// Record describes the experts of a layer from 0 to Layers-1. The slice is
// shared: do not change it.
func (s *InPlace) Record(layer int) []Projection { return s.records[layer] }

// SlotBytes is the largest Placement.Bytes of a layer from 0 to Layers-1.
func (s *InPlace) SlotBytes(layer int) int64 { return s.slots[layer] }

// Locate writes into p what must be read for an expert. It allocates only
// while p's slices are too short. The error is an ErrUnknownExpert.
func (s *InPlace) Locate(id ExpertID, p *Placement) error {
	if !s.cp.Shape.Contains(id) {
		return unknownExpert(id, s.cp.Shape)
	}
	s.place(id, p)
	return nil
}

// place lays the windows around an expert's tensors one behind the other in
// the slot. Windows of neighbouring tensors that touch become one read.
func (s *InPlace) place(id ExpertID, p *Placement) {
	p.Reads, p.Parts = p.Reads[:0], p.Parts[:0]
	tensors := s.cp.Layers[id.Layer].Tensors
	var end int64
	for i := range tensors {
		span := tensors[i].Span(int(id.Index))
		align := s.aligns[span.File]
		w := newWindow(span.Offset, span.Bytes, align)
		size := s.cp.Files[span.File].Size
		if n := len(p.Reads); n > 0 && p.Reads[n-1].touches(span.File, w) {
			last := &p.Reads[n-1]
			last.Bytes = max(last.Bytes, w.offset+w.bytes-last.Offset)
			last.Need = min(last.Bytes, size-last.Offset)
			end = last.At + last.Bytes
			p.Parts = append(p.Parts, Part{At: last.At + span.Offset - last.Offset, Bytes: span.Bytes})
			continue
		}
		at := alignUp(end, max(align, smallAlign))
		p.Reads = append(p.Reads, Read{Lane: span.File, Offset: w.offset, Bytes: w.bytes, At: at, Need: w.need(size)})
		p.Parts = append(p.Parts, Part{At: at + w.skip, Bytes: span.Bytes})
		end = at + w.bytes
	}
	p.Bytes = alignUp(end, placementAlign)
}

// touches reports whether a window begins inside a read or right behind it.
func (r *Read) touches(file int, w window) bool {
	return r.Lane == file && w.offset >= r.Offset && w.offset <= r.Offset+r.Bytes
}

// Close closes the files and returns the first error. A second call does no
// more than return the same.
func (s *InPlace) Close() error { return s.open.close("checkpoint") }
