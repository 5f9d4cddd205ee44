package layout

import (
	"fmt"
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
			if err := lane.File.Close(); err != nil && s.err == nil {
				s.err = fmt.Errorf("layout: close %s: %w", what, err)
			}
		}
	})
	return s.err
}
