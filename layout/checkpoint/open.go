package checkpoint

import (
	"errors"
	"io/fs"
	"path/filepath"

	"outrider/layout"
)

// Open is OpenWith without wishes.
func Open(fsys layout.FS, path string, mode layout.Mode) (*Model, error) {
	return OpenWith(fsys, path, mode, Options{})
}

// OpenWith opens a store's folder, or in place whatever ReadWith reads. Wishes
// are for checkpoints: a store has had them when it was built. Errors are those
// of layout.OpenStore and ReadWith.
func OpenWith(fsys layout.FS, path string, mode layout.Mode, opts Options) (*Model, error) {
	info, err := fsys.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() && !isCheckpoint(fsys, path) {
		store, err := layout.OpenStore(fsys, path, mode)
		if err != nil {
			return nil, err
		}
		m := store.Manifest()
		return &Model{Source: store, Store: store, Name: m.Model.Name, Architecture: m.Model.Architecture,
			Format: m.Source.Format, RestBytes: m.Model.RestBytes, Files: m.Source.Files}, nil
	}
	cp, err := ReadWith(fsys, path, opts)
	if err != nil {
		return nil, err
	}
	source, err := layout.OpenInPlace(fsys, cp, mode)
	if err != nil {
		return nil, err
	}
	return &Model{Source: source, Checkpoint: &cp, Name: cp.Name, Architecture: cp.Architecture,
		Format: cp.Format, RestBytes: cp.RestBytes, Files: cp.Files}, nil
}

// isCheckpoint reports whether a folder holds a checkpoint's files and is no
// store, finished or not.
func isCheckpoint(fsys layout.FS, dir string) bool {
	for _, name := range []string{"manifest.json", "index.bin", "building.json"} {
		if _, err := fsys.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	inGGUF, inTensors, err := models(fsys, dir)
	return err == nil && (inGGUF != "" || inTensors != "")
}
