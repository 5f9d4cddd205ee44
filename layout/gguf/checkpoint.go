package gguf

import (
	"path/filepath"
	"strings"

	"outrider/layout"
	"outrider/layout/discover"
)

// Checkpoint is CheckpointWith without wishes.
func (f *File) Checkpoint() (layout.Checkpoint, error) {
	return f.CheckpointWith(discover.Options{})
}

// CheckpointWith says where the model's routed experts lie. Blocks that predict
// further tokens (the last nextn_predict_layers of block_count) are left out,
// unless asked for: they are no part of a forward pass, and no tensor of theirs
// counts in RestBytes. Shared experts, chunk experts (ffn_*_chexps), routers and
// all others are resident.
//
// Errors: ErrNoExperts if no tensor has a routed expert's name; ErrExperts if a
// tensor has such a name but fits no record, a record lacks a projection, layers
// disagree about the number of experts, or they contradict the metadata.
func (f *File) CheckpointWith(opts discover.Options) (layout.Checkpoint, error) {
	if kind, ok := f.meta["general.type"].Str(); ok && kind != "model" {
		return layout.Checkpoint{}, f.errExperts(ErrNoExperts, "general.type is %q, want %q", kind, "model")
	}
	facts, err := f.facts()
	if err != nil {
		return layout.Checkpoint{}, err
	}
	tensors := make([]discover.Tensor, len(f.tensors))
	for i := range f.tensors {
		t := &f.tensors[i]
		tensors[i] = discover.Tensor{Name: t.Name, Type: t.TypeName(), Dims: t.Dims, File: t.Shard, Offset: t.Offset, Bytes: t.Bytes}
	}
	return discover.Find(discover.Input{Format: "gguf", Files: f.Shards(), Tensors: tensors, Facts: facts}, opts)
}

// facts is what the metadata says of the model's shape.
func (f *File) facts() (discover.Facts, error) {
	facts := discover.Facts{Name: f.name(), Architecture: f.Architecture(), Routing: f.routing(),
		TopKRemedy: "metadata key \"" + f.Architecture() + ".expert_used_count\" is missing; give --top-k"}
	total := 0
	for _, number := range []struct {
		key string
		to  *int
	}{
		{"block_count", &total}, {"nextn_predict_layers", &facts.Predict}, {"expert_count", &facts.Experts},
		{"expert_used_count", &facts.TopK}, {"embedding_length", &facts.Hidden},
	} {
		if err := f.archInt(number.key, number.to); err != nil {
			return facts, err
		}
	}
	if facts.Predict > 0 && facts.Predict >= total {
		return facts, f.errExperts(ErrExperts, "nextn_predict_layers is %d of block_count %d", facts.Predict, total)
	}
	facts.Blocks = total - facts.Predict
	return facts, nil
}

// archInt reads a number under the architecture's prefix, if it is there.
func (f *File) archInt(key string, to *int) error {
	v, ok := f.ArchMeta(key)
	if !ok {
		return nil
	}
	n, ok := v.Uint()
	if !ok || n > layout.MaxRecords {
		return f.errExperts(ErrExperts, "metadata key %q is %v (%v), want a number up to %d", f.Architecture()+"."+key, v, v.Kind(), layout.MaxRecords)
	}
	*to = int(n)
	return nil
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
