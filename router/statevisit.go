package router

import (
	"errors"
	"fmt"
	"math"
	"sync"
)

// State visits what a predictor has learned: the same calls, in the same order,
// write it into a file or fill it in from one, so that saving and loading cannot
// drift apart. Whoever visits need not look at errors: after the first one,
// nothing is written, and nothing changed any more.
//
// Numbers are checked against the limits given in both directions, so that a
// forecast which went wrong is not saved either. What is loaded may come from a
// stranger: sizes must follow from the predictor, or be checked, before memory is
// made for them (see Has).
//
// Not safe for concurrent use.
type State struct {
	out *stateWriter // nil while loading
	in  *stateReader // nil while saving

	part string // what the section at hand holds
	body []byte // of that section: what was saved so far, or what is left to load
	err  error

	// While a file's predictor is being made, the sections read are kept, for its
	// VisitState to read them again.
	making bool
	kept   [][]byte
	again  [][]byte
}

// Loading reports whether the state is being filled in.
func (s *State) Loading() bool { return s.in != nil }

func (s *State) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// Refuse ends the visit: the values at hand cannot be those of a predictor.
func (s *State) Refuse(format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	if s.Loading() {
		s.fail(&CorruptError{Offset: s.in.at, Part: s.part, Reason: reason})
		return
	}
	s.fail(fmt.Errorf("router: save: %s: %s", s.part, reason))
}

// Section visits a part, named for error texts, with a lock held unless it is
// nil: what is saved of one part is of one moment. The lock is not held while the
// part is written or read. Sections do not nest, and all other calls but Inner
// are made within one. One that visits nothing is an error.
func (s *State) Section(part string, lock sync.Locker, visit func()) {
	if s.err != nil {
		return
	}
	s.part, s.body = part, s.body[:0]
	if s.Loading() {
		s.body = s.nextSection()
	}
	if s.err == nil {
		s.visitLocked(lock, visit)
	}
	switch {
	case s.err != nil:
	case s.Loading():
		if len(s.body) > 0 {
			s.Refuse("%d bytes too many", len(s.body))
		}
	case len(s.body) == 0:
		s.fail(fmt.Errorf("router: save: %s: nothing was visited", part))
	default:
		s.fail(s.out.section(s.body))
	}
}

func (s *State) visitLocked(lock sync.Locker, visit func()) {
	if lock != nil {
		lock.Lock()
		defer lock.Unlock()
	}
	visit()
}

func (s *State) nextSection() []byte {
	if len(s.again) > 0 {
		body := s.again[0]
		s.again = s.again[1:]
		return body
	}
	body, err := s.in.section()
	var corrupt *CorruptError
	switch {
	case errors.As(err, &corrupt):
		corrupt.Part = s.part
		s.fail(err)
	case err != nil:
		s.fail(err)
	case body == nil:
		s.Refuse("the end mark stands in its place")
	case s.making:
		s.kept = append(s.kept, append([]byte(nil), body...))
	}
	return body
}

// Revision visits the version of a predictor's fields. A file of another one is
// ErrStateVersion.
func (s *State) Revision(revision int) {
	saved := revision
	s.Int(&saved, 0, math.MaxInt32)
	if s.err == nil && saved != revision {
		s.fail(fmt.Errorf("router: load: %w: the predictor's state is of revision %d, this program reads revision %d", ErrStateVersion, saved, revision))
	}
}

// Inner visits a predictor that the visiting one builds on, outside of any
// section. It must be a Saver; a file's inner predictor of another name or other
// options is ErrOption.
func (s *State) Inner(p Predictor) {
	saver, ok := p.(Saver)
	if !ok {
		s.fail(notSaved(p))
		return
	}
	name := s.innerName(stateName(p))
	if s.err == nil && name != stateName(p) {
		s.fail(fmt.Errorf("router: load: %w: the saved forecast builds on %q, this predictor on %q", ErrOption, name, stateName(p)))
		return
	}
	saver.VisitState(s)
}

func (s *State) innerName(name string) string {
	s.Section("inner predictor", nil, func() { s.Text(&name, maxStateName) })
	return name
}

// visitOptions visits the options of a predictor of ours, in a section. While
// loading they must be those that the file has.
func visitOptions[O comparable](s *State, own O, visit func(*O, *State)) {
	saved := readOptions(s, own, visit)
	if s.err == nil && saved != own {
		s.fail(fmt.Errorf("router: load: %w: the forecast was saved with %+v, the predictor has %+v", ErrOption, saved, own))
	}
}

// readOptions is visitOptions for a predictor that is yet to be made.
func readOptions[O comparable](s *State, own O, visit func(*O, *State)) O {
	s.Section("options", nil, func() { visit(&own, s) })
	return own
}
