package router

import (
	"math"
	"slices"

	"outrider/layout"
	"outrider/trace"
)

// Sequences forecasts for all sequences that run over one memory. It holds each
// one's history and place, joins their forecasts, and lets them rank what a Keeper
// keeps. The runtime and the simulation both run on it, so that what one finds is
// what the other does. Steps count layer executions of any sequence.
//
// Not safe for concurrent use; it starts nothing and allocates nothing in the
// steady state.
type Sequences struct {
	shape     layout.Shape
	predictor Predictor
	keeper    *Keeper         // nil: forecasts rank nothing
	changed   func(layer int) // told after the keys of a layer changed; nil: nobody

	open      []*Sequence // in the order they were opened
	now       int64       // the latest step
	joined    []float32   // scratch
	positions []int       // scratch
}

// NewSequences makes an empty set. Without a keeper the forecasts rank nothing;
// changed, if not nil, is called after the keys of a layer changed.
func NewSequences(shape layout.Shape, p Predictor, k *Keeper, changed func(layer int)) *Sequences {
	return &Sequences{shape: shape, predictor: p, keeper: k, changed: changed, joined: make([]float32, shape.Experts)}
}

// Sequence is what is kept of one sequence.
type Sequence struct {
	all     *Sequences
	history History
	hinter  Hinter      // history, if it takes hints; else nil
	hinted  bool        // a hint may be ahead
	p       [][]float32 // the latest score of each layer
	outlook [][]float32 // and the latest outlook
	layer   int         // that it executed latest in this pass, or beforeFirst
	last    int64       // step of that
	at      int64       // step of the latest event
	// stride is how many steps lie between two layers of the sequence, smoothed:
	// one for a sequence alone or in a batch, more where several take turns.
	stride float64
	ahead  []Ahead
}

// Ahead is a layer that a sequence looks forward to.
type Ahead struct {
	Layer    int
	NeededBy int64 // the step in which the sequence is expected to execute it
}

// beforeFirst stands for the layer of a pass that has not begun.
const beforeFirst = -1

// strideGain is the share that the latest distance has in a stride.
const strideGain = 0.25

// Open starts a sequence in the given step. Close ends it.
func (s *Sequences) Open(step int64) *Sequence {
	q := &Sequence{all: s, history: s.predictor.NewHistory(), layer: beforeFirst, last: step, at: step, stride: 1,
		p: make([][]float32, s.shape.Layers), outlook: make([][]float32, s.shape.Layers)}
	for l := range q.p {
		q.p[l] = make([]float32, s.shape.Experts)
		q.outlook[l] = make([]float32, s.shape.Experts)
	}
	q.hinter, _ = q.history.(Hinter)
	s.open = append(s.open, q)
	s.now = max(s.now, step)
	return q
}

// Close forgets the sequence; nothing may be done with it afterwards.
func (q *Sequence) Close() {
	s := q.all
	if i := slices.Index(s.open, q); i >= 0 {
		s.open = slices.Delete(s.open, i, i+1)
	}
}

// All are the open sequences, in the order they were opened. The slice is the
// set's own.
func (s *Sequences) All() []*Sequence { return s.open }

// Now is the latest step.
func (s *Sequences) Now() int64 { return s.now }

// Begin starts a pass of the sequence; see History.Begin.
func (q *Sequence) Begin(step int64, phase trace.Phase, tokens []int32) {
	q.all.now = max(q.all.now, step)
	q.layer, q.at = beforeFirst, step
	q.history.Begin(phase, tokens)
}

// Observe tells what the router of a layer chose for the tokens of the sequence
// in a step, and ranks that layer by the forecast of its next execution.
func (q *Sequence) Observe(step int64, layer int, choices []Choice) {
	s := q.all
	s.now = max(s.now, step)
	q.layer = layer
	if step > q.last {
		q.stride += (float64(step-q.last) - q.stride) * strideGain
	}
	q.last, q.at = step, step
	q.history.Observe(layer, choices)
	s.place()
	q.score(layer, (*Keeper).Set)
}

// Hint tells what is thought of a layer's next execution; see Hinter.Hint. It is
// looked at by the next LookAhead. A predictor that takes no hints has none.
func (q *Sequence) Hint(from, layer int, ids []int32, p []float32) {
	if q.hinter != nil {
		q.hinter.Hint(from, layer, ids, p)
		q.hinted = true
	}
}

// LookAhead forecasts the layers that the sequence executes next, as many as
// given and those beyond that were hinted, but never all of them, and ranks by
// that.
func (q *Sequence) LookAhead(layers int) {
	s := q.all
	q.ahead = q.ahead[:0]
	most := max(s.shape.Layers-1, 1)
	reach := min(layers, most)
	if q.hinted {
		reach = most
	}
	hinted := false
	for d := 1; d <= reach; d++ {
		layer := (q.layer + d) % s.shape.Layers
		if q.hinted {
			known := q.hinter.Hinted(layer)
			hinted = hinted || known
			if d > layers && !known {
				continue
			}
		}
		q.score(layer, (*Keeper).SetNext)
		q.ahead = append(q.ahead, Ahead{Layer: layer, NeededBy: q.at + int64(float64(d)*q.stride)})
	}
	q.hinted = hinted
}

// LookNowhere drops what the sequence looked forward to.
func (q *Sequence) LookNowhere() { q.ahead = q.ahead[:0] }

// Ahead are the layers that the last LookAhead forecast, the next one first.
// The slice is the sequence's own.
func (q *Sequence) Ahead() []Ahead { return q.ahead }

// Scores is the sequence's latest forecast of a layer: for each expert the
// probability that the layer's next execution for it uses that. The slice is the
// sequence's own.
func (q *Sequence) Scores(layer int) []float32 { return q.p[layer] }

// Active reports whether the sequence still takes turns: an idle one asks for
// nothing and keeps nothing.
func (q *Sequence) Active() bool {
	return float64(q.all.now-q.last) <= 2*float64(q.all.shape.Layers)*q.stride
}

// place tells the keeper where the sequences are.
func (s *Sequences) place() {
	if s.keeper == nil {
		return
	}
	s.positions = s.positions[:0]
	for _, q := range s.open {
		if q.Active() {
			s.positions = append(s.positions, q.layer)
		}
	}
	s.keeper.Enter(s.positions...)
}

// score forecasts a layer for one sequence and lets the forecast of all rank what is
// kept of it: by their outlook where they have one, else as the forecast of a whole
// pass ahead (Set) or of the next execution alone (SetNext).
func (q *Sequence) score(layer int, keep func(*Keeper, int, []float32)) {
	s := q.all
	q.history.Score(layer, q.p[layer])
	if s.keeper == nil {
		return
	}
	if outlook(q.history, layer, q.p[layer], q.outlook[layer]) {
		s.keeper.SetOutlook(layer, s.join(q, layer, (*Sequence).outlooks))
	} else {
		keep(s.keeper, layer, s.join(q, layer, (*Sequence).Scores))
	}
	if s.changed != nil {
		s.changed(layer)
	}
}

// outlooks is the sequence's latest outlook of a layer; all 0 before the first.
func (q *Sequence) outlooks(layer int) []float32 { return q.outlook[layer] }

// join merges what all active sequences say of a layer; q is one of them.
func (s *Sequences) join(q *Sequence, layer int, of func(*Sequence, int) []float32) []float32 {
	if len(s.open) == 1 {
		return of(q, layer)
	}
	clear(s.joined)
	for _, other := range s.open {
		if other.Active() {
			Join(s.joined, of(other, layer))
		}
	}
	return s.joined
}

// mostReach is the longest horizon that is chosen by itself: nearer forecasts are
// better ones.
const mostReach = 8

// Reach is how many layers of the sequence lie within so many steps, rounded up, 8
// at most: how far to look ahead if a read takes those steps.
func (q *Sequence) Reach(steps float64) int {
	return int(min(math.Ceil(steps/q.stride), mostReach))
}
