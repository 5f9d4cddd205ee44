package memfs

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"outrider/layout"
)

var _ layout.ResumeFS = (*FS)(nil)

// OpenWrite opens an existing file for more writing.
func (f *FS) OpenWrite(name string) (layout.WriteFile, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.findLocked(filepath.Clean(name))
	switch {
	case n == nil:
		return nil, pathError("open", name, fs.ErrNotExist)
	case n.dir:
		return nil, pathError("open", name, fmt.Errorf("not a regular file"))
	}
	return &writeFile{fs: f, node: n, name: name}, nil
}
