package trace

import "slices"

// WarningKind says what a Warning is about.
type WarningKind string

const (
	// InterleavedSequences: rows of several sequences stand under one Seq.
	InterleavedSequences WarningKind = "interleaved-sequences"
	// ShiftedLayer: a layer's rows belong to tokens before or after theirs.
	ShiftedLayer WarningKind = "shifted-layer"
)

// Warning is a suspicion about how a trace was recorded. It comes from
// statistics of the routing alone, so it is strong evidence and no proof.
type Warning struct {
	Kind  WarningKind
	Layer int    // the first layer it is about, or -1
	Rows  int    // the stride of the interleaving; how many rows a layer is late (below 0: early)
	Text  string // in plain words, with the figures and the remedy
}

// Bounds of the two tests. Both look at the beginning of a trace only.
const (
	suspectRows = 20000 // most rows that either test looks at
	suspectRuns = 16    // equal rows in succession that are taken for warm-up
)

// suspects runs both tests over the tokens of a trace.
type suspects struct {
	ids    int
	topK   int
	rows   int
	runs   int // how many rows in succession were equal to the one before
	before []int32
	reuse  *reuseTest
	shift  *shiftTest
}

func newSuspects(h Header) *suspects {
	return &suspects{ids: h.ids(), topK: h.Shape.TopK, reuse: newReuseTest(h.Shape), shift: newShiftTest(h.Shape)}
}

// add looks at one token. Engines warm up with one token over and over, in
// places for thousands of rows; those would drown all else and are passed over.
func (s *suspects) add(a *Activation) {
	if s.rows >= suspectRows {
		return
	}
	if slices.Equal(s.before, a.Experts) {
		s.runs++
	} else {
		s.runs = 0
		s.before = append(s.before[:0], a.Experts...)
	}
	if s.runs >= suspectRuns {
		return
	}
	s.rows++
	s.reuse.add(a)
	s.shift.add(a)
}

// warnings is what the tests found.
func (s *suspects) warnings() []Warning {
	return append(s.reuse.warnings(), s.shift.warnings()...)
}
