package checkpoint

import (
	"slices"

	"outrider/layout"
)

// Model is a model whose experts can be read: a store, or a checkpoint opened
// in place, with what both can say about themselves.
type Model struct {
	Source layout.Source // whoever opened the model closes it
	Store  *layout.Store // Source, if it is a store; else nil
	// Checkpoint is the description of a checkpoint in place; nil for a store.
	Checkpoint   *layout.Checkpoint
	Name         string
	Architecture string
	Format       string // of the checkpoint, also of one that a store was built from
	RestBytes    int64  // of tensors that are not routed experts
	Files        []layout.CheckpointFile
}

// SourceTensors names the checkpoint's tensors that the projections of a layer from
// 0 to Layers-1 are or were taken from, in the order of Source.Record; nil for a
// store that was built without keeping them. The dimensions are shared: do not
// change them.
func (m *Model) SourceTensors(layer int) []layout.ManifestTensor {
	if m.Checkpoint == nil {
		if all := m.Store.Manifest().Source.Tensors; all != nil {
			return slices.Clone(all[layer])
		}
		return nil
	}
	tensors := m.Checkpoint.Layers[layer].Tensors
	out := make([]layout.ManifestTensor, len(tensors))
	for i := range tensors {
		out[i] = layout.ManifestTensor{Name: tensors[i].Source, Dims: tensors[i].SourceDims}
	}
	return out
}

// BuiltFrom reports whether these files are the checkpoint that the store was built
// from, or that is open in place: the same number, sizes and headers. Names and
// folders may differ. False where the model names no files.
func (m *Model) BuiltFrom(files []layout.CheckpointFile) bool {
	return len(m.Files) > 0 && slices.EqualFunc(m.Files, files, func(a, b layout.CheckpointFile) bool {
		return a.Size == b.Size && a.Header == b.Header
	})
}
