package layout

import (
	"errors"
	"fmt"
	"io"
)

// spanReader reads the tensors of experts from a checkpoint's files.
type spanReader struct {
	cp    *Checkpoint
	files []File
	// from maps a projection of the store's records to the checkpoint's tensor,
	// for each layer.
	from [][]int
}

// newSpanReader opens the files of a checkpoint whose layers must have the
// projections that the table's forms have. The caller closes the files.
func newSpanReader(fsys FS, cp *Checkpoint, t *table) (*spanReader, error) {
	if err := cp.Validate(); err != nil {
		return nil, err
	}
	if !cp.Shape.Equal(t.shape) {
		return nil, fmt.Errorf("layout: %w: it has another shape than the store", ErrSourceChanged)
	}
	s := &spanReader{cp: cp, from: make([][]int, len(cp.Layers))}
	for l := range cp.Layers {
		have := cp.Layers[l].projections()
		want := t.forms[t.layers[l]].record()
		if len(have) != len(want) {
			return nil, fmt.Errorf("layout: %w: layer %d has %d expert tensors, the store %d", ErrSourceChanged, l, len(have), len(want))
		}
		for _, p := range want {
			i := findProjection(have, p)
			if i < 0 {
				return nil, fmt.Errorf("layout: %w: layer %d has no tensor for projection %s of type %s with %d bytes an expert",
					ErrSourceChanged, l, p.Name, p.Type, p.Bytes)
			}
			s.from[l] = append(s.from[l], i)
		}
	}
	var err error
	s.files, err = cp.openFiles(fsys, Buffered)
	return s, err
}

func findProjection(have []Projection, want Projection) int {
	for i := range have {
		if sameProjection(have[i], want) {
			return i
		}
	}
	return -1
}

// read fills p with the bytes at off of one projection of an expert.
func (s *spanReader) read(id ExpertID, projection int, off int64, p []byte) error {
	t := &s.cp.Layers[id.Layer].Tensors[s.from[id.Layer][projection]]
	span := t.Span(int(id.Index))
	err := readTouched(s.files[span.File], p, span.Offset+off)
	if err == nil {
		return nil
	}
	path := s.cp.Files[span.File].Path
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: the file ends too early: %w", ErrSourceChanged, err)
	}
	return fmt.Errorf("layout: read %v %s (tensor %s) from %s: %w", id, t.Name, t.Source, path, err)
}

func (s *spanReader) close() error { return closeFiles(s.files) }
