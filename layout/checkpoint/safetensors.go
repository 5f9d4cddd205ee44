package checkpoint

import (
	"path/filepath"
	"slices"
	"strings"

	"outrider/layout"
	"outrider/layout/discover"
	"outrider/layout/safetensors"
)

// readSafetensors describes a model of safetensors files. What it says of itself
// is in config.json beside them.
func readSafetensors(fsys layout.FS, path string, opts Options) (layout.Checkpoint, error) {
	set, err := safetensors.OpenSet(fsys, path)
	if err != nil {
		return layout.Checkpoint{}, err
	}
	in := discover.Input{Format: "safetensors", Files: set.Shards()}
	if path, data, ok := set.Config(); ok {
		if in.Facts, err = factsOf(path, data); err != nil {
			return layout.Checkpoint{}, err
		}
		in.Facts.TopKRemedy = path + " does not say it; give --top-k"
	} else {
		in.Facts.TopKRemedy = "put the model's config.json beside its weights, or give --top-k"
	}
	if in.Facts.Name == "" {
		in.Facts.Name = nameOf(in.Files)
	}
	tensors := set.Tensors()
	in.Tensors = make([]discover.Tensor, len(tensors))
	for i := range tensors {
		t := &tensors[i]
		dims := slices.Clone(t.Shape)
		slices.Reverse(dims)
		in.Tensors[i] = discover.Tensor{Name: t.Name, Type: t.DType, Dims: dims, File: t.Shard, Offset: t.Offset, Bytes: t.Bytes, Part: t.Part}
	}
	cp, err := discover.Find(in, discover.Options(opts))
	cp.Notes = set.Notes()
	return cp, err
}

// nameOf is the folder's name, or the file's where the folder has none.
func nameOf(files []layout.CheckpointFile) string {
	if len(files) == 0 {
		return ""
	}
	if dir := filepath.Base(filepath.Dir(files[0].Path)); dir != "." && dir != ".." && dir != string(filepath.Separator) {
		return dir
	}
	return strings.TrimSuffix(filepath.Base(files[0].Path), ".safetensors")
}
