package router

import (
	"fmt"

	"outrider/layout"

	"github.com/RoaringBitmap/roaring/v2"
)

// Shape is the shape of the model that is forecast.
func (t *HistoryTransition) Shape() layout.Shape { return t.shape }

func (o *HistoryTransitionOptions) visit(s *State) { s.Int(&o.Tokens, 1, maxIndexTokens) }

// VisitState visits the tokens of each layer.
func (t *HistoryTransition) VisitState(s *State) {
	visitOptions(s, HistoryTransitionOptions{Tokens: t.tokens}, (*HistoryTransitionOptions).visit)
	for l := range t.layers {
		x := &t.layers[l]
		s.Section(layerPart(l), &x.mu, func() {
			s.Revision(1)
			x.visit(s, t.shape, t.tokens)
		})
	}
}

// maxSetBytes is more than roaring takes for one set.
const maxSetBytes = 2*(maxIndexTokens+1) + 64

func (x *tokenIndex) visit(s *State, shape layout.Shape, tokens int) {
	if !s.Has(x.use != nil, indexKinds*shape.Experts) {
		return
	}
	s.Int(&x.count, 0, tokens)
	s.Int(&x.slot, min(x.count, 1), x.count)
	if x.count < tokens && x.slot != x.count {
		s.Refuse("token %d is the latest of %d", x.slot, x.count)
	}
	x.visitRows(s, shape)
	for kind := range x.sets {
		for e, set := range x.sets[kind] {
			x.visitSet(s, set, kind, e)
		}
	}
}

// visitRows visits what the tokens chose; uses follow from it.
func (x *tokenIndex) visitRows(s *State, shape layout.Shape) {
	n := x.count * shape.TopK
	if !s.Has(n > 0, 2*n) {
		if x.count > 0 {
			s.Refuse("%d tokens chose nothing", x.count)
		}
		n = 0
	}
	if s.err != nil {
		return
	}
	if s.Loading() {
		x.openLocked(shape.Experts, n)
		x.rows = x.rows[:n]
	}
	s.Uint16s(x.rows, 0, noExpert)
	if s.Loading() && s.err == nil {
		x.countUses(s, shape)
	}
}

func (x *tokenIndex) countUses(s *State, shape layout.Shape) {
	used := newMarks(shape.Experts)
	for i, e := range x.rows {
		if i%shape.TopK == 0 {
			used.start()
		}
		switch {
		case e == noExpert:
		case int(e) >= shape.Experts || used.at[e] == used.round:
			s.Refuse("token %d chose expert %d of %d, or chose it twice", i/shape.TopK+1, e, shape.Experts)
			return
		default:
			used.at[e] = used.round
			x.use[e]++
		}
	}
}

// visitSet visits a set in roaring's own form.
func (x *tokenIndex) visitSet(s *State, set *roaring.Bitmap, kind, expert int) {
	if s.err != nil {
		return
	}
	var saved []byte
	if !s.Loading() {
		var err error
		if saved, err = set.ToBytes(); err != nil {
			s.Refuse("set of expert %d: %v", expert, err)
		}
	}
	saved = s.Bytes(saved, maxSetBytes)
	if s.err != nil || !s.Loading() {
		return
	}
	// The members go into a set of our own making: what a stranger's bytes make may
	// be of another form than one that is changed in place.
	members, err := setMembers(saved, x.count)
	if err != nil {
		s.Refuse("set %d of expert %d: %v", kind, expert, err)
		return
	}
	for _, t := range members {
		set.Add(t)
	}
}

// setMembers reads a set of some of count tokens, and 0. A panic of the library
// becomes an error.
func setMembers(saved []byte, count int) (members []uint32, err error) {
	defer func() {
		if r := recover(); r != nil {
			members, err = nil, fmt.Errorf("bitmap: %v", r)
		}
	}()
	set := roaring.New()
	n, err := set.FromBuffer(saved)
	switch {
	case err != nil:
		return nil, fmt.Errorf("bitmap: %w", err)
	case n != int64(len(saved)):
		return nil, fmt.Errorf("bitmap takes %d of %d bytes", n, len(saved))
	}
	if err := set.Validate(); err != nil {
		return nil, fmt.Errorf("bitmap: %w", err)
	}
	if set.GetCardinality() == 0 || set.Minimum() != 0 || set.Maximum() > uint32(count) {
		return nil, fmt.Errorf("bitmap holds what is not one of %d tokens", count)
	}
	return set.ToArray(), nil
}
