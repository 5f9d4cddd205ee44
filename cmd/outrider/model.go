package main

import (
	"errors"
	"fmt"
	"io/fs"

	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/layout/gguf"
)

// model is a store or a checkpoint, open, and the path that a user gave for it.
type model struct {
	*checkpoint.Model
	path string
}

// openModel opens a store's folder or a checkpoint's file. The caller closes
// the source, or hands it to a runtime that does.
func openModel(fsys layout.FS, path string, mode layout.Mode) (*model, error) {
	m, err := checkpoint.Open(fsys, path, mode)
	if err != nil {
		return nil, err
	}
	return &model{Model: m, path: path}, nil
}

// ggufFormat is how a checkpoint's description names the format.
const ggufFormat = "gguf"

// slotBytes is the memory that all experts take, of which a budget in per cent
// is a share.
func (m *model) slotBytes() int64 {
	var total int64
	for l := range m.Source.Shape().Layers {
		total += int64(m.Source.Shape().Experts) * m.Source.SlotBytes(l)
	}
	return total
}

// largestSlot is what the largest expert takes.
func (m *model) largestSlot() (most int64) {
	for l := range m.Source.Shape().Layers {
		most = max(most, m.Source.SlotBytes(l))
	}
	return most
}

// floor is the memory that one layer of one token needs, cycle what one token
// touches over all layers.
func (m *model) floor() (floor, cycle int64) {
	for l := range m.Source.Shape().Layers {
		layer := int64(m.Source.Shape().TopK) * m.Source.SlotBytes(l)
		floor = max(floor, layer)
		cycle += layer
	}
	return floor, cycle
}

// densePath is the GGUF checkpoint that holds everything but the experts: the
// checkpoint itself, or for a store the one it was built from, unless given.
func (m *model) densePath(fsys layout.FS, given string) (string, error) {
	if m.Format != ggufFormat {
		return "", inputf("%s holds experts of a %s checkpoint, and the reference runner reads GGUF only: convert the model to GGUF, or embed the runtime in a runner of yours", m.path, m.Format)
	}
	if given == "" && m.Store == nil {
		return m.path, nil
	}
	path := given
	if path == "" {
		if len(m.Files) == 0 {
			return "", inputf("%s does not say which checkpoint it was built from: name the GGUF file that holds the dense weights with --model", m.path)
		}
		path = m.Files[0].Path
	}
	file, err := gguf.Open(fsys, path)
	if errors.Is(err, fs.ErrNotExist) && given == "" {
		return "", inputf("the checkpoint that %s was built from, %s, is not there any more: name the GGUF file that holds the dense weights with --model", m.path, path)
	}
	if err != nil {
		return "", fmt.Errorf("dense weights: %w", err)
	}
	if !m.BuiltFrom(file.Shards()) {
		return "", inputf("%s is not the checkpoint that %s was built from: name that one with --model", path, m.path)
	}
	return path, nil
}
