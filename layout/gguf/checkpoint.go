package gguf

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"outrider/layout"
)

// found is one tensor of routed experts.
type found struct {
	expertName
	Tensor
}

// block holds the expert tensors of one of the model's blocks by part.
type block map[string][]found

// Checkpoint says where the model's routed experts lie. Blocks for multi-token
// prediction (the last nextn_predict_layers of block_count) are left out: their
// experts are no part of a forward pass, and count neither as records nor in
// RestBytes. Shared experts, chunk experts (ffn_*_chexps), routers and norms
// are resident and count in RestBytes.
//
// Errors: ErrNoExperts if no tensor has a routed expert's name; ErrExperts if a
// tensor has such a name but fits no record, a record lacks a projection,
// layers disagree about the number of experts, or they contradict the metadata.
func (f *File) Checkpoint() (layout.Checkpoint, error) {
	if kind, ok := f.meta["general.type"].Str(); ok && kind != "model" {
		return layout.Checkpoint{}, f.errExperts(ErrNoExperts, "general.type is %q, want %q", kind, "model")
	}
	blocks, rest, err := f.blocks()
	if err != nil {
		return layout.Checkpoint{}, err
	}
	shape, err := f.shape(blocks)
	if err != nil {
		return layout.Checkpoint{}, err
	}
	cp := layout.Checkpoint{Format: "gguf", Name: f.name(), Architecture: f.Architecture(),
		Shape: shape, Files: f.Shards(), RestBytes: rest}
	for l := range shape.Layers {
		id := shape.LayerID(l)
		layer, err := f.layer(id, blocks[id], shape.Experts)
		if err != nil {
			return layout.Checkpoint{}, err
		}
		cp.Layers = append(cp.Layers, layer)
	}
	cp.Routers, cp.NoRouters = f.routers(shape)
	return cp, nil
}

// blocks sorts the tensors: routed experts by block and part, and the bytes of all that stays resident.
func (f *File) blocks() (map[int]block, int64, error) {
	total, predict, err := f.blockCounts()
	if err != nil {
		return nil, 0, err
	}
	blocks := map[int]block{}
	var rest int64
	for _, t := range f.tensors {
		name, class := parseName(t.Name)
		switch {
		case class == likeExpert:
			return nil, 0, f.errExperts(ErrExperts, "tensor %q is named like a routed expert's, but belongs to no record; known are %s and .bias, .scale, .input_scale of these", t.Name, namePattern)
		case class == notExpert:
			rest += t.Bytes
		case total >= 0 && name.block >= total:
			return nil, 0, f.errExperts(ErrExperts, "tensor %q lies beyond the model's %d blocks", t.Name, total)
		case total >= 0 && name.block >= total-predict:
		default:
			if blocks[name.block] == nil {
				blocks[name.block] = block{}
			}
			b := blocks[name.block]
			b[name.part] = append(b[name.part], found{name, t})
		}
	}
	if len(blocks) == 0 {
		return nil, 0, f.errExperts(ErrNoExperts, "none of %d tensors is named %s (architecture %q): a dense model, or names of a newer kind", len(f.tensors), namePattern, f.Architecture())
	}
	return blocks, rest, nil
}

// blockCounts is the number of blocks (-1 unknown), and how many of the last predict further tokens.
func (f *File) blockCounts() (total, predict int, err error) {
	total, err = f.archInt("block_count", -1)
	if err != nil {
		return 0, 0, err
	}
	predict, err = f.archInt("nextn_predict_layers", 0)
	if err != nil {
		return 0, 0, err
	}
	if predict > 0 && predict >= total {
		return 0, 0, f.errExperts(ErrExperts, "nextn_predict_layers is %d of block_count %d", predict, total)
	}
	return total, predict, nil
}

func (f *File) shape(blocks map[int]block) (layout.Shape, error) {
	ids := slices.Sorted(maps.Keys(blocks))
	topK, err := f.archInt("expert_used_count", 0)
	if err != nil {
		return layout.Shape{}, err
	}
	if topK == 0 {
		return layout.Shape{}, f.errExperts(ErrExperts, "metadata key %q is missing: experts of a token unknown", f.Architecture()+".expert_used_count")
	}
	experts, err := f.archInt("expert_count", 0)
	if err != nil {
		return layout.Shape{}, err
	}
	if experts == 0 {
		if experts, err = f.countExperts(blocks[ids[0]]); err != nil {
			return layout.Shape{}, err
		}
	}
	s := layout.Shape{Layers: len(ids), Experts: experts, TopK: topK}
	if ids[len(ids)-1] != len(ids)-1 {
		s.LayerIDs = ids
	}
	if err := s.Validate(); err != nil {
		return s, f.errExperts(ErrExperts, "%v", err)
	}
	return s, nil
}

// countExperts is the number of experts that a block's tensors show, for a
// checkpoint whose metadata does not say.
func (f *File) countExperts(b block) (int, error) {
	for _, part := range recordOrder {
		for _, t := range b[part] {
			if t.expert != stacked {
				return len(b[part]), nil
			}
			if n := rank(part); len(t.Dims) == n && t.Dims[n-1] <= layout.MaxExperts {
				return int(t.Dims[n-1]), nil
			}
			return 0, f.errExperts(ErrExperts, "tensor %q has dimensions %v, want %d of them, the last up to %d", t.Name, t.Dims, rank(part), layout.MaxExperts)
		}
	}
	return 0, f.errExperts(ErrNoExperts, "a block without expert tensors")
}

// archInt reads a number under the architecture's prefix; none is def.
func (f *File) archInt(key string, def int) (int, error) {
	v, ok := f.ArchMeta(key)
	if !ok {
		return def, nil
	}
	n, ok := v.Uint()
	if !ok || n > layout.MaxRecords {
		return 0, f.errExperts(ErrExperts, "metadata key %q is %v (%v), want a number up to %d", f.Architecture()+"."+key, v, v.Kind(), layout.MaxRecords)
	}
	return int(n), nil
}

// name is the model's own name, or else the file's.
func (f *File) name() string {
	if s, ok := f.meta["general.name"].Str(); ok && s != "" {
		return s
	}
	return strings.TrimSuffix(filepath.Base(f.shards[0].Path), ".gguf")
}

func (f *File) errExperts(sentinel error, format string, args ...any) error {
	return wrong(sentinel, f.shards[0].Path, format, args...)
}
