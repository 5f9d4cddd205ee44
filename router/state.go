package router

import (
	"fmt"
	"io"

	"outrider/layout"
)

// Saver is a predictor whose learned state can be saved. All that New makes are,
// and a predictor of yours can be: name what it has learned in VisitState, and
// Save and LoadInto do the rest. One that wraps another visits that by State.Inner.
//
// Histories are not saved: they end with their sequences.
type Saver interface {
	Predictor
	// Shape is the shape of the model that is forecast.
	Shape() layout.Shape
	// VisitState visits all that the predictor has learned, section by section.
	// Others may use the predictor meanwhile: take its locks by State.Section.
	VisitState(s *State)
}

var (
	_ Saver = (*Online)(nil)
	_ Saver = (*Transition)(nil)
	_ Saver = (*HistoryTransition)(nil)
	_ Saver = (*Matrix)(nil)
	_ Saver = (*Recency)(nil)
	_ Saver = (*Frequency)(nil)
)

// maxStateName bounds a predictor's name in a file.
const maxStateName = 255

// Save writes what a predictor has learned, for Load, LoadFor and LoadInto. It
// makes one Write a section, of some kB to MB. Sequences may go on meanwhile: each
// layer is copied as it is at one moment, under its lock, which is held for some
// milliseconds and not while writing.
//
// What cannot be saved is ErrNotSaved: Oracle and what NewRevealed makes learn
// nothing of their own (save the inner predictor), and others that are no Saver.
// Numbers that no predictor can have learned (such as NaN) are an error, and then w
// holds a part that Load refuses: so write beside the file, and rename.
//
// Sizes after 3,000 tokens, in MB (go test -run '^$' -bench Save -benchtime 1x ./router):
//
//	layers × experts    24 × 32   26 × 64   48 × 128
//	online                  4.9       9.7         47
//	transition              0.2       0.9        6.3
//	transition-history      1.3       2.8        6.5
//	matrix                 0.07      0.16       0.46
//
// Frequency takes some kB and Recency nothing. Hinted adds some 50 kB a layer of 128
// experts for each distance that it was hinted from.
func Save(w io.Writer, p Predictor) error {
	saver, ok := p.(Saver)
	if !ok {
		return notSaved(p)
	}
	out, err := newStateWriter(w)
	if err != nil {
		return err
	}
	s := &State{out: out}
	name, shape := stateName(p), saver.Shape()
	s.visitHead(&name, &shape)
	saver.VisitState(s)
	if s.err != nil {
		return s.err
	}
	return out.end()
}

// stateName is the name of a predictor in a file.
func stateName(p Predictor) string {
	if _, ok := p.(*Hinted); ok {
		return hintedName
	}
	return p.Name()
}

func notSaved(p Predictor) error {
	return fmt.Errorf("router: %w: %q has no learned state of its own, or is no Saver", ErrNotSaved, p.Name())
}

// Load makes the predictor that was saved, with its options. Scores are then bit
// for bit those of the saved one, and learning goes on as it would have there.
//
// Bytes that are not ours are ErrNotState; another version of the format or of
// the predictor's state is ErrStateVersion; what is damaged, cut off or goes on
// after its end is a *CorruptError. A predictor that is not of this package is
// ErrUnknownPredictor: make it, and use LoadInto.
//
// The input may come from a stranger: no size is believed before so much data has
// come. Memory stays within 256 times the input's length, and at most 128 MiB more
// for the collection of a Matrix. As for what the predictor takes later, in use, that
// follows from its shape: ask for yours by LoadFor.
func Load(r io.Reader) (Predictor, error) { return load(r, nil) }

// LoadFor is Load for a model of a known shape: another one is ErrShape. Of the
// shape the numbers of layers and experts, and top-k are saved and compared, but
// not the layers' block numbers.
func LoadFor(r io.Reader, shape layout.Shape) (Predictor, error) {
	if err := shape.Validate(); err != nil {
		return nil, fmt.Errorf("router: load: %w", err)
	}
	return load(r, &shape)
}

func load(r io.Reader, want *layout.Shape) (Predictor, error) {
	s, name, shape, err := openState(r)
	if err != nil {
		return nil, err
	}
	defer s.in.close()
	if want != nil {
		if err := sameShape(shape, *want); err != nil {
			return nil, err
		}
		shape = *want
	}
	s.making = true
	p := s.make(name, shape)
	if s.err != nil {
		return nil, s.err
	}
	s.making, s.again, s.kept = false, s.kept, nil
	if err := s.fill(p); err != nil {
		return nil, err
	}
	return p, nil
}

// LoadInto fills in a predictor that was made alike and has seen nothing: one of
// yours, or one of ours with options of your choice. Besides the errors of Load
// and LoadFor there is ErrOption, where the saved predictor is another one or has
// other options. After an error the predictor may be filled in part: drop it.
func LoadInto(r io.Reader, p Predictor) error {
	saver, ok := p.(Saver)
	if !ok {
		return notSaved(p)
	}
	s, name, shape, err := openState(r)
	if err != nil {
		return err
	}
	defer s.in.close()
	if name != stateName(p) {
		return fmt.Errorf("router: load: %w: it is the state of %q, the predictor is %q", ErrOption, name, stateName(p))
	}
	if err := sameShape(shape, saver.Shape()); err != nil {
		return err
	}
	return s.fill(saver)
}

// openState reads the head of a file.
func openState(r io.Reader) (*State, string, layout.Shape, error) {
	var name string
	var shape layout.Shape
	in, err := newStateReader(r)
	if err != nil {
		return nil, name, shape, err
	}
	s := &State{in: in}
	s.visitHead(&name, &shape)
	if s.err != nil {
		in.close()
	}
	return s, name, shape, s.err
}

func (s *State) visitHead(name *string, shape *layout.Shape) {
	s.Section("head", nil, func() {
		s.Text(name, maxStateName)
		s.Int(&shape.Layers, 1, layout.MaxLayers)
		s.Int(&shape.Experts, 1, layout.MaxExperts)
		s.Int(&shape.TopK, 1, layout.MaxExperts)
		if s.err != nil {
			return
		}
		if err := shape.Validate(); err != nil {
			s.Refuse("%v", err)
		}
	})
}

func sameShape(saved, want layout.Shape) error {
	if saved.SameSize(want) {
		return nil
	}
	return fmt.Errorf("router: load: %w: the forecast was saved for %d layers × %d experts, top %d, and is wanted for %d layers × %d experts, top %d",
		ErrShape, saved.Layers, saved.Experts, saved.TopK, want.Layers, want.Experts, want.TopK)
}

// fill loads all there is after the head.
func (s *State) fill(p Saver) error {
	p.VisitState(s)
	if s.err != nil {
		return s.err
	}
	s.part = "end"
	body, err := s.in.section()
	if err == nil && body != nil {
		s.Refuse("a section too many")
		err = s.err
	}
	return err
}

// make makes the predictor of a name with the options that the file has.
func (s *State) make(name string, shape layout.Shape) Saver {
	var p Saver
	var err error
	switch name {
	case "online":
		p, err = NewOnline(shape, readOptions(s, OnlineOptions{}, (*OnlineOptions).visit))
	case "transition":
		p, err = NewTransition(shape)
	case "transition-history":
		p, err = NewHistoryTransition(shape, readOptions(s, HistoryTransitionOptions{}, (*HistoryTransitionOptions).visit))
	case "matrix":
		p, err = NewMatrix(shape, readOptions(s, MatrixOptions{}, (*MatrixOptions).visit))
	case hintedName:
		p = s.makeHinted(shape)
	case "recency":
		p, err = NewRecency(shape)
	case "frequency":
		p, err = NewFrequency(shape)
	default:
		s.fail(fmt.Errorf("router: load: %w %q: make the predictor yourself and fill it in by LoadInto", ErrUnknownPredictor, name))
	}
	if s.err == nil && err != nil {
		s.Refuse("%v", err)
	}
	return p
}
