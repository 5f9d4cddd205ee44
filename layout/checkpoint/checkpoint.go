// Package checkpoint reads a model's checkpoint whatever its file format: it
// finds the format by content and describes where the routed experts lie. Open
// does the same for whatever a user names: a store, or a checkpoint in place.
package checkpoint

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"outrider/layout"
	"outrider/layout/discover"
	"outrider/layout/gguf"
	"outrider/layout/safetensors"
)

// ErrUnknown is returned for what no checkpoint reader knows.
var ErrUnknown = errors.New("not a checkpoint that can be read here")

// Options are wishes. The zero value is what a runner needs.
type Options struct {
	// Predict lays out the experts of blocks that predict further tokens as well.
	// They are left out otherwise: no forward pass uses them.
	Predict bool
	// TopK says how many experts a token uses, in place of what the model says;
	// 0 does not. A checkpoint without metadata (a safetensors file without
	// config.json) needs it.
	TopK int
}

// Read is ReadWith without wishes.
func Read(fsys layout.FS, path string) (layout.Checkpoint, error) {
	return ReadWith(fsys, path, Options{})
}

// ReadWith describes the checkpoint at path: a GGUF or safetensors file, any
// shard of several, a safetensors index, or a folder with one model of either
// form. Only headers and config.json are read, and no file stays open.
//
// Errors are a *layout.FormatError of layout/gguf, layout/safetensors or
// layout/discover, ErrUnknown, or wrap those of fsys.
func ReadWith(fsys layout.FS, path string, opts Options) (layout.Checkpoint, error) {
	info, err := fsys.Stat(path)
	if err != nil {
		return layout.Checkpoint{}, fmt.Errorf("checkpoint: %w", err)
	}
	if info.IsDir() {
		return readFolder(fsys, path, opts)
	}
	if strings.HasSuffix(path, ".json") {
		return readSafetensors(fsys, path, opts)
	}
	cp, notGGUF := readGGUF(fsys, path, opts)
	if !errors.Is(notGGUF, gguf.ErrNotGGUF) {
		return cp, notGGUF
	}
	cp, err = readSafetensors(fsys, path, opts)
	if errors.Is(err, safetensors.ErrNotSafetensors) && !strings.HasSuffix(path, ".safetensors") {
		return cp, fmt.Errorf("checkpoint: %s: %w; name a GGUF or safetensors file, an index, or a folder of them: %w", path, ErrUnknown, notGGUF)
	}
	return cp, err
}

// readFolder reads the one model that a folder holds.
func readFolder(fsys layout.FS, dir string, opts Options) (layout.Checkpoint, error) {
	inGGUF, inTensors, err := models(fsys, dir)
	switch {
	case err != nil:
		return layout.Checkpoint{}, fmt.Errorf("checkpoint: %w", err)
	case inGGUF != "" && inTensors != "":
		return layout.Checkpoint{}, fmt.Errorf("checkpoint: %s is a folder with both %s and %s: %w; name the file that is meant", dir, inGGUF, inTensors, ErrUnknown)
	case inGGUF != "":
		return readGGUF(fsys, dir, opts)
	case inTensors != "":
		return readSafetensors(fsys, dir, opts)
	}
	return layout.Checkpoint{}, fmt.Errorf("checkpoint: %s is a folder without GGUF or safetensors files: %w; name the folder or file that has the weights", dir, ErrUnknown)
}

// models names one file of each form that a folder holds, "" if there is none.
// The router matrices of a store are no model.
func models(fsys layout.FS, dir string) (inGGUF, inTensors string, err error) {
	entries, err := fsys.ReadDir(dir)
	for _, e := range entries {
		switch name := e.Name(); {
		case filepath.Ext(name) == ".gguf":
			inGGUF = name
		case filepath.Ext(name) == ".safetensors" && name != "router.safetensors":
			inTensors = name
		}
	}
	return inGGUF, inTensors, err
}

func readGGUF(fsys layout.FS, path string, opts Options) (layout.Checkpoint, error) {
	file, err := gguf.Open(fsys, path)
	if err != nil {
		return layout.Checkpoint{}, err
	}
	return file.CheckpointWith(discover.Options(opts))
}
