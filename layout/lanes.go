package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
)

// laneSet is the open lanes of a source, closed once.
type laneSet struct {
	lanes []Lane
	once  sync.Once
	err   error
}

// close closes all lanes and returns the first error; a second call returns
// the same and closes nothing.
func (s *laneSet) close(what string) error {
	s.once.Do(func() {
		for _, lane := range s.lanes {
			if err := lane.close(); err != nil && s.err == nil {
				s.err = fmt.Errorf("layout: close %s: %w", what, err)
			}
		}
	})
	return s.err
}

// close closes the files of a lane that are open.
func (l *Lane) close() error {
	var errs []error
	for _, f := range []File{l.File, l.Copies} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// SameDevice reports whether two files or folders lie on one device, so that lanes
// there share its bandwidth. False also where the system does not say.
func SameDevice(a, b fs.FileInfo) bool {
	x, okA := deviceOf(a)
	y, okB := deviceOf(b)
	return okA && okB && x == y
}
