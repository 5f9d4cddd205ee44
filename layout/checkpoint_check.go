package layout

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// Validate reports the first way in which the description contradicts itself:
// missing layers, a projection that is there for some experts only, a span
// outside its file. It reads no file. The error is an ErrCheckpoint.
func (c *Checkpoint) Validate() error {
	if err := c.Shape.Validate(); err != nil {
		return fmt.Errorf("layout: %w: %w", ErrCheckpoint, err)
	}
	if len(c.Layers) != c.Shape.Layers {
		return fmt.Errorf("layout: %w: expert tensors for %d layers, want %d", ErrCheckpoint, len(c.Layers), c.Shape.Layers)
	}
	for l := range c.Layers {
		if err := c.validateLayer(l); err != nil {
			return fmt.Errorf("layout: %w: layer %d: %w", ErrCheckpoint, l, err)
		}
	}
	if c.Routers != nil {
		if err := c.Routers.validate(c.Shape, c.Files); err != nil {
			return fmt.Errorf("layout: %w: %w", ErrCheckpoint, err)
		}
	}
	return nil
}

func (c *Checkpoint) validateLayer(layer int) error {
	tensors := c.Layers[layer].Tensors
	if len(tensors) < 1 || len(tensors) > MaxProjections {
		return fmt.Errorf("%d expert tensors, want 1 to %d", len(tensors), MaxProjections)
	}
	var total int64
	for i := range tensors {
		t := &tensors[i]
		if t.Name == "" || slices.ContainsFunc(tensors[:i], func(o ExpertTensor) bool { return o.Name == t.Name }) {
			return fmt.Errorf("tensor %s: projection name %q is empty or not its own", t.Source, t.Name)
		}
		if !utf8.ValidString(t.Name) || !utf8.ValidString(t.Type) {
			return fmt.Errorf("tensor %q: name %q or type %q is not text", t.Source, t.Name, t.Type)
		}
		if t.Bytes < 1 || t.Bytes > MaxRecordBytes/2 {
			return fmt.Errorf("tensor %s: %d bytes an expert, want 1 to %d", t.Source, t.Bytes, int64(MaxRecordBytes/2))
		}
		if total += t.Bytes; total > MaxRecordBytes/2 {
			return fmt.Errorf("an expert has more than %d bytes", int64(MaxRecordBytes/2))
		}
		if t.Each != nil && len(t.Each) != c.Shape.Experts {
			return fmt.Errorf("tensor %s: spans for %d experts, want %d", t.Source, len(t.Each), c.Shape.Experts)
		}
		if err := c.validateSpans(t); err != nil {
			return err
		}
	}
	return nil
}

func (c *Checkpoint) validateSpans(t *ExpertTensor) error {
	for e := range c.Shape.Experts {
		s := t.Span(e)
		if s.File < 0 || s.File >= len(c.Files) {
			return fmt.Errorf("tensor %s expert %d: file %d of %d", t.Source, e, s.File, len(c.Files))
		}
		if s.Bytes != t.Bytes {
			return fmt.Errorf("tensor %s expert %d: %d bytes, want %d", t.Source, e, s.Bytes, t.Bytes)
		}
		if f := c.Files[s.File]; s.Offset < 0 || s.Offset > f.Size-s.Bytes {
			return fmt.Errorf("tensor %s expert %d: %d bytes at %d lie outside %s, which has %d",
				t.Source, e, s.Bytes, s.Offset, f.Path, f.Size)
		}
	}
	return nil
}

// projections lists what a layer's experts consist of.
func (l *CheckpointLayer) projections() []Projection {
	out := make([]Projection, len(l.Tensors))
	for i := range l.Tensors {
		out[i] = l.Tensors[i].Projection
	}
	return out
}

// openFiles opens the checkpoint's files and proves that they have the sizes
// they had when the checkpoint was described. The caller closes them.
func (c *Checkpoint) openFiles(fsys FS, mode Mode) (files []File, err error) {
	defer func() {
		if err != nil {
			closeFiles(files)
			files = nil
		}
	}()
	for _, want := range c.Files {
		f, err := fsys.Open(want.Path, mode)
		if err != nil {
			return files, fmt.Errorf("layout: open checkpoint: %w", err)
		}
		files = append(files, f)
		if f.Size() != want.Size {
			return files, fmt.Errorf("layout: %w: %s has %d bytes, but had %d when it was described: download it again or describe it anew",
				ErrSourceChanged, want.Path, f.Size(), want.Size)
		}
	}
	return files, nil
}

func closeFiles(files []File) error {
	var first error
	for _, f := range files {
		if f == nil {
			continue
		}
		if err := f.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func sameProjection(a, b Projection) bool {
	return a.Name == b.Name && a.Type == b.Type && a.Bytes == b.Bytes && slices.Equal(a.Dims, b.Dims) &&
		a.Fused == b.Fused && a.Transposed == b.Transposed
}
