package memfs

import "outrider/layout"

var _ layout.ResumeFS = (*FS)(nil)

// OpenWrite opens an existing file for more writing.
func (f *FS) OpenWrite(name string) (layout.WriteFile, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.fileLocked(name)
	if err != nil {
		return nil, err
	}
	return &writeFile{fs: f, node: n, name: name}, nil
}
