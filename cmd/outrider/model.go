package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/layout/gguf"
)

// model is a store or a checkpoint, open, with what both can say about themselves.
type model struct {
	path       string
	source     layout.Source
	store      *layout.Store // nil for a checkpoint in place
	name       string
	arch       string
	format     string // of the checkpoint: "gguf"
	restBytes  int64
	checkpoint []layout.CheckpointFile
}

// openModel opens a store's folder or a checkpoint's file. The caller closes
// the source, or hands it to a runtime that does.
func openModel(fsys layout.FS, path string, mode layout.Mode) (*model, error) {
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
		return &model{path: path, source: store, store: store, name: m.Model.Name, arch: m.Model.Architecture,
			format: m.Source.Format, restBytes: m.Model.RestBytes, checkpoint: m.Source.Files}, nil
	}
	cp, err := checkpoint.Read(fsys, path)
	if err != nil {
		return nil, err
	}
	source, err := layout.OpenInPlace(fsys, cp, mode)
	if err != nil {
		return nil, err
	}
	name := cp.Name
	if name == "" {
		name = filepath.Base(path)
	}
	return &model{path: path, source: source, name: name, arch: cp.Architecture,
		format: cp.Format, restBytes: cp.RestBytes, checkpoint: cp.Files}, nil
}

// slotBytes is the memory that all experts take, of which a budget in per cent
// is a share.
func (m *model) slotBytes() int64 {
	var total int64
	for l := range m.source.Shape().Layers {
		total += int64(m.source.Shape().Experts) * m.source.SlotBytes(l)
	}
	return total
}

// floor is the memory that one layer of one token needs, cycle what one token
// touches over all layers.
func (m *model) floor() (floor, cycle int64) {
	for l := range m.source.Shape().Layers {
		layer := int64(m.source.Shape().TopK) * m.source.SlotBytes(l)
		floor = max(floor, layer)
		cycle += layer
	}
	return floor, cycle
}

// densePath is the GGUF file that holds everything but the experts: the
// checkpoint itself, or for a store the one it was built from, unless given.
func (m *model) densePath(fsys layout.FS, given string) (string, error) {
	if given == "" && m.store == nil {
		return m.path, nil
	}
	path := given
	if path == "" {
		if len(m.checkpoint) == 0 {
			return "", inputf("%s does not say which checkpoint it was built from: name the GGUF file that holds the dense weights with --model", m.path)
		}
		path = m.checkpoint[0].Path
	}
	file, err := gguf.Open(fsys, path)
	if errors.Is(err, fs.ErrNotExist) && given == "" {
		return "", inputf("the checkpoint that %s was built from, %s, is not there any more: name the GGUF file that holds the dense weights with --model", m.path, path)
	}
	if err != nil {
		return "", fmt.Errorf("dense weights: %w", err)
	}
	if !sameCheckpoint(file.Shards(), m.checkpoint) {
		return "", inputf("%s is not the checkpoint that %s was built from: name that one with --model", path, m.path)
	}
	return path, nil
}

// sameCheckpoint compares sizes and headers; names and folders may differ.
func sameCheckpoint(a, b []layout.CheckpointFile) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Size != b[i].Size || a[i].Header != b[i].Header {
			return false
		}
	}
	return true
}
