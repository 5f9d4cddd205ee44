package device

import (
	"io/fs"

	"outrider/layout"
)

// FS is a layout.FS whose files lie on modelled drives.
type FS struct {
	Base layout.FS
	// Place tells the drive of a file; nil: the file takes no time of its own.
	Place func(name string) *Drive
}

var _ layout.FS = (*FS)(nil)

// Open opens a file of Base and puts it on its drive.
func (f *FS) Open(name string, mode layout.Mode) (layout.File, error) {
	base, err := f.Base.Open(name, mode)
	if err != nil {
		return nil, err
	}
	if f.Place != nil {
		if d := f.Place(name); d != nil {
			return d.File(base), nil
		}
	}
	return base, nil
}

// Stat is Base's.
func (f *FS) Stat(name string) (fs.FileInfo, error) { return f.Base.Stat(name) }

// ReadDir is Base's.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) { return f.Base.ReadDir(name) }
