package faultfs

import (
	"errors"
	"fmt"

	"outrider/layout"
)

var _ layout.ResumeFS = (*FS)(nil)

// OpenWrite counts as Create; where inner is no layout.ResumeFS it fails with
// errors.ErrUnsupported.
func (f *FS) OpenWrite(name string) (layout.WriteFile, error) {
	if _, err := f.before(Create, name); err != nil {
		return nil, err
	}
	inner, ok := f.inner.(layout.ResumeFS)
	if !ok {
		return nil, fmt.Errorf("faultfs: %T: %w", f.inner, errors.ErrUnsupported)
	}
	file, err := inner.OpenWrite(name)
	if err != nil {
		return nil, err
	}
	return &writeFile{WriteFile: file, fs: f, name: name}, nil
}
