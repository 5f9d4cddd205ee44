package checkpoint

import "outrider/layout"

// Model is a model whose experts can be read: a store, or a checkpoint opened
// in place, with what both can say about themselves.
type Model struct {
	Source       layout.Source // whoever opened the model closes it
	Store        *layout.Store // Source, if it is a store; else nil
	Name         string
	Architecture string
	Format       string // of the checkpoint, also of one that a store was built from
	RestBytes    int64  // of tensors that are not routed experts
	Files        []layout.CheckpointFile
}

// Open opens a store's folder, or a checkpoint in place: a GGUF file, or any
// shard of a split one. Errors are those of layout.OpenStore and Read.
func Open(fsys layout.FS, path string, mode layout.Mode) (*Model, error) {
	info, err := fsys.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		store, err := layout.OpenStore(fsys, path, mode)
		if err != nil {
			return nil, err
		}
		m := store.Manifest()
		return &Model{Source: store, Store: store, Name: m.Model.Name, Architecture: m.Model.Architecture,
			Format: m.Source.Format, RestBytes: m.Model.RestBytes, Files: m.Source.Files}, nil
	}
	cp, err := Read(fsys, path)
	if err != nil {
		return nil, err
	}
	source, err := layout.OpenInPlace(fsys, cp, mode)
	if err != nil {
		return nil, err
	}
	return &Model{Source: source, Name: cp.Name, Architecture: cp.Architecture,
		Format: cp.Format, RestBytes: cp.RestBytes, Files: cp.Files}, nil
}
