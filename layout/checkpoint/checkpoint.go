// Package checkpoint reads a model's checkpoint whatever its file format: it
// finds the format by content and describes where the routed experts lie. Open
// does the same for whatever a user names: a store, or a checkpoint in place.
package checkpoint

import (
	"errors"
	"fmt"

	"outrider/layout"
	"outrider/layout/gguf"
)

// ErrUnknown is returned for a file that no checkpoint reader knows.
var ErrUnknown = errors.New("not a checkpoint that can be read here")

// Read describes the checkpoint at path: a GGUF file, or any shard of a split
// one. Only headers are read, and no file stays open.
func Read(fsys layout.FS, path string) (layout.Checkpoint, error) {
	info, err := fsys.Stat(path)
	if err != nil {
		return layout.Checkpoint{}, fmt.Errorf("checkpoint: %w", err)
	}
	if info.IsDir() {
		return layout.Checkpoint{}, fmt.Errorf("checkpoint: %s is a folder: %w; name a GGUF file", path, ErrUnknown)
	}
	file, err := gguf.Open(fsys, path)
	if errors.Is(err, gguf.ErrNotGGUF) {
		return layout.Checkpoint{}, fmt.Errorf("checkpoint: %s: %w; name a GGUF file: %w", path, ErrUnknown, err)
	}
	if err != nil {
		return layout.Checkpoint{}, err
	}
	return file.Checkpoint()
}
