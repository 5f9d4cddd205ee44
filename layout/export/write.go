package export

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"outrider/layout"
	"outrider/layout/gguf"
	"outrider/layout/safetensors"
)

// bigEndian is how types of tensors end whose numbers are in that order.
const bigEndian = " big-endian"

// write writes all files of the plan.
func (p *plan) write(r *reads, out *folder, tell func(done, total int64)) error {
	var done int64
	content := func(t *tensor) func(io.Writer) error {
		return func(w io.Writer) error {
			for e := t.first; e < t.end; e++ {
				if err := r.copyTo(w, layout.ExpertID{Layer: int32(t.layer), Index: int32(e)}, t.projection); err != nil {
					return err
				}
				if done += t.bytes / int64(t.end-t.first); tell != nil {
					tell(done, p.bytes)
				}
			}
			return nil
		}
	}
	if p.format == GGUF {
		return p.writeGGUF(out, content)
	}
	for file, stem := range p.stems {
		if err := p.writeSafetensors(out, stem, file, content); err != nil {
			return err
		}
	}
	return nil
}

// writeGGUF writes the tensors with what a reader must know of the model to find its
// experts.
func (p *plan) writeGGUF(out *folder, content func(*tensor) func(io.Writer) error) error {
	m := p.manifest
	arch := m.Model.Architecture
	if arch == "" {
		return fmt.Errorf("%w: the store names no architecture, which %s needs", ErrFormat, GGUF)
	}
	w := &gguf.Writer{}
	w.Set("general.architecture", arch)
	if m.Model.Name != "" {
		w.Set("general.name", m.Model.Name)
	}
	w.Set(arch+".block_count", uint32(m.Shape.LayerID(m.Shape.Layers-1)+1))
	w.Set(arch+".expert_count", uint32(m.Shape.Experts))
	w.Set(arch+".expert_used_count", uint32(m.Shape.TopK))
	w.BigEndian = slices.ContainsFunc(p.tensors, func(t tensor) bool { return strings.HasSuffix(t.typ, bigEndian) })
	for i := range p.tensors {
		t := &p.tensors[i]
		typ, ok := gguf.ParseType(strings.TrimSuffix(t.typ, bigEndian))
		if !ok {
			return fmt.Errorf("%w: tensor %q has type %q, which %s does not know", ErrFormat, t.name, t.typ, GGUF)
		}
		w.Tensor(t.name, typ, t.dims, content(t))
	}
	counts := cut(p.tensors, p.most)
	if len(counts) > 1 {
		_, err := w.WriteShards(p.stems[0], counts, out.create)
		return err
	}
	return toFile(out, p.stems[0]+".gguf", w.WriteTo)
}

// writeSafetensors writes the tensors of one set of files.
func (p *plan) writeSafetensors(out *folder, stem string, file int, content func(*tensor) func(io.Writer) error) error {
	w := &safetensors.Writer{}
	w.Meta("format", "pt")
	var own []tensor
	for i := range p.tensors {
		t := &p.tensors[i]
		if t.file != file {
			continue
		}
		shape := slices.Clone(t.dims)
		slices.Reverse(shape)
		w.Tensor(t.name, t.typ, shape, content(t))
		own = append(own, *t)
	}
	counts := cut(own, p.most)
	switch {
	case len(own) == 0:
		return nil
	case len(counts) > 1 && len(p.stems) == 1:
		return w.WriteShards(stem, counts, out.create)
	}
	return toFile(out, stem+".safetensors", w.WriteTo)
}

func toFile(out *folder, name string, write func(io.Writer) (int64, error)) error {
	f, err := out.create(name)
	if err != nil {
		return err
	}
	_, err = write(f)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
