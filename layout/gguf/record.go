package gguf

import (
	"slices"
	"strings"

	"outrider/layout"
)

// layer turns a block's expert tensors into the record of its experts.
func (f *File) layer(id int, b block, experts int) (layout.CheckpointLayer, error) {
	if err := f.checkParts(id, b); err != nil {
		return layout.CheckpointLayer{}, err
	}
	var l layout.CheckpointLayer
	for _, part := range recordOrder {
		if len(b[part]) == 0 {
			continue
		}
		t, err := f.expertTensor(id, part, b[part], experts)
		if err != nil {
			return layout.CheckpointLayer{}, err
		}
		l.Tensors = append(l.Tensors, t)
	}
	return l, nil
}

// checkParts makes sure that a record is whole: down, and up or a fused
// gate_up; gate may be absent (some architectures have none). A side tensor
// needs its projection.
func (f *File) checkParts(id int, b block) error {
	_, gate := b["gate"]
	_, up := b["up"]
	_, fused := b["gate_up"]
	_, down := b["down"]
	if !down || !(up || fused) {
		return f.errExperts(ErrExperts, "block %d has %s, want down and up, or down and gate_up", id, strings.Join(sortedNames(b), ", "))
	}
	if fused && (gate || up) {
		return f.errExperts(ErrExperts, "block %d has gate_up and also gate or up", id)
	}
	for _, part := range sortedNames(b) {
		projection, _, side := strings.Cut(part, ".")
		if _, ok := b[projection]; side && !ok {
			return f.errExperts(ErrExperts, "tensor %q belongs to no record: block %d has no %s projection", b[part][0].Name, id, projection)
		}
	}
	return nil
}

// rank is how many dimensions a stacked tensor has: the last counts experts.
func rank(part string) int {
	switch _, side, _ := strings.Cut(part, "."); side {
	case "":
		return 3
	case "bias":
		return 2
	}
	return 1
}

func (f *File) expertTensor(id int, part string, ts []found, experts int) (layout.ExpertTensor, error) {
	if ts[0].expert == stacked && len(ts) == 1 {
		return f.stackedTensor(part, ts[0].Tensor, experts)
	}
	return f.listedTensor(id, part, ts, experts)
}

func (f *File) stackedTensor(part string, t Tensor, experts int) (layout.ExpertTensor, error) {
	dims := slices.Clone(t.Dims)
	for len(dims) < rank(part) { // writers drop trailing dimensions of 1
		dims = append(dims, 1)
	}
	last := len(dims) - 1
	if len(dims) != rank(part) || dims[last] != int64(experts) {
		return layout.ExpertTensor{}, f.errExperts(ErrExperts, "tensor %q has dimensions %v, want %d of them, the last %d (experts)", t.Name, t.Dims, rank(part), experts)
	}
	if t.Bytes%int64(experts) != 0 {
		return layout.ExpertTensor{}, f.errExperts(ErrExperts, "tensor %q has %d bytes, which %d experts do not share evenly", t.Name, t.Bytes, experts)
	}
	if dims = dims[:last]; len(dims) == 0 {
		dims = []int64{1}
	}
	return layout.ExpertTensor{
		Projection: layout.Projection{Name: part, Type: t.Type.String(), Dims: dims, Bytes: t.Bytes / int64(experts)},
		Source:     t.Name, File: t.Shard, Offset: t.Offset,
	}, nil
}

// listedTensor joins the tensors of single experts. Source names the first.
func (f *File) listedTensor(id int, part string, ts []found, experts int) (layout.ExpertTensor, error) {
	each := make([]layout.Span, experts)
	var first *found
	for i := range ts {
		t := &ts[i]
		switch {
		case t.expert == stacked:
			return layout.ExpertTensor{}, f.errExperts(ErrExperts, "block %d has %q and single experts' tensors of the same projection", id, t.Name)
		case t.expert >= experts:
			return layout.ExpertTensor{}, f.errExperts(ErrExperts, "tensor %q: the model has %d experts a layer", t.Name, experts)
		}
		each[t.expert] = layout.Span{File: t.Shard, Offset: t.Offset, Bytes: t.Bytes}
		if first == nil || t.expert < first.expert {
			first = t
		}
	}
	for e, span := range each {
		if span.Bytes == 0 {
			return layout.ExpertTensor{}, f.errExperts(ErrExperts, "block %d has no %s of expert %d; %d of %d experts are there", id, part, e, len(ts), experts)
		}
	}
	for i := range ts {
		if t := &ts[i]; t.Type != first.Type || !slices.Equal(t.Dims, first.Dims) {
			return layout.ExpertTensor{}, f.errExperts(ErrExperts, "tensor %q is %v %v, want %v %v as %q", t.Name, t.Type, t.Dims, first.Type, first.Dims, first.Name)
		}
	}
	return layout.ExpertTensor{
		Projection: layout.Projection{Name: part, Type: first.Type.String(), Dims: slices.Clone(first.Dims), Bytes: first.Bytes},
		Source:     first.Name, Each: each,
	}, nil
}
