package sim

import (
	"outrider/internal/passes"
	"outrider/layout"
	"outrider/router"
	"outrider/trace"
)

// memo is what a predictor says in the passes of a schedule, written down once, so
// that many runs can be simulated by the same forecast at little cost: after each
// event the score of the layer itself and of the layers after it.
type memo struct {
	shape  layout.Shape
	reach  int
	events []int32 // the layer observed, or beforeFirst
	scores []float32
	// outlooks are router.Outlooker's, as the scores; nil if the predictor has none.
	outlooks []float32
}

const beforeFirst = -1

// memoReach is how many layers ahead a memo knows. Beyond it says what it knows
// furthest ahead.
const memoReach = 4

func newMemo(p router.Predictor, s *passes.Schedule) *memo {
	shape := s.Shape()
	m := &memo{shape: shape, reach: min(memoReach, max(shape.Layers-1, 1))}
	open := map[int64]router.History{}
	union := passes.NewUnion(shape)
	for parts := s.Next(); parts != nil; parts = s.Next() {
		for _, part := range parts {
			if open[part.Seq] == nil {
				open[part.Seq] = p.NewHistory()
			}
			phase, tokens := s.Known(part)
			open[part.Seq].Begin(phase, tokens)
			m.note(open[part.Seq], beforeFirst)
		}
		for layer := range shape.Layers {
			union.Gather(s, parts, layer)
			for i, part := range parts {
				open[part.Seq].Observe(layer, union.Choices[i])
				m.note(open[part.Seq], layer)
			}
		}
		for _, part := range parts {
			if part.Last {
				delete(open, part.Seq)
			}
		}
	}
	return m
}

func (m *memo) note(h router.History, layer int) {
	m.events = append(m.events, int32(layer))
	row, far := make([]float32, m.shape.Experts), make([]float32, m.shape.Experts)
	seer, ok := h.(router.Outlooker)
	for d := range m.reach + 1 {
		at := (layer + d) % m.shape.Layers
		if at >= 0 {
			h.Score(at, row)
		}
		m.scores = append(m.scores, row...)
		if !ok {
			continue
		}
		// Without one, nothing is known beyond the next execution.
		if at < 0 || !seer.Outlook(at, row, far) {
			copy(far, row)
		}
		m.outlooks = append(m.outlooks, far...)
	}
}

// predictor plays the memo to one run.
func (m *memo) predictor() *memoPlayer { return &memoPlayer{memo: m, at: -1} }

type memoPlayer struct {
	memo   *memo
	at     int // event
	passes int // begun
	// twist, if not nil, changes each score.
	twist func(pass, layer int, p []float32)
}

var _ router.Predictor = (*memoPlayer)(nil)

func (p *memoPlayer) Name() string               { return "memo" }
func (p *memoPlayer) NewHistory() router.History { return memoHistory{p} }

// memoHistory is the same for all sequences: the events of all are in one order.
type memoHistory struct{ *memoPlayer }

func (h memoHistory) Begin(trace.Phase, []int32)   { h.at++; h.passes++ }
func (h memoHistory) Observe(int, []router.Choice) { h.at++ }

func (h memoHistory) Score(layer int, dst []float32) {
	h.play(h.memo.scores, layer, dst)
}

// Outlook is twisted as scores are, so that what is wrong about the next execution
// is about the later ones too.
func (h memoHistory) Outlook(layer int, _, dst []float32) bool {
	if h.memo.outlooks == nil {
		return false
	}
	h.play(h.memo.outlooks, layer, dst)
	return true
}

func (h memoHistory) play(rows []float32, layer int, dst []float32) {
	m := h.memo
	ahead := layer - int(m.events[h.at])
	if ahead < 0 {
		ahead += m.shape.Layers
	}
	copy(dst, rows[(h.at*(m.reach+1)+min(ahead, m.reach))*m.shape.Experts:][:m.shape.Experts])
	if h.twist != nil {
		h.twist(h.passes-1, layer, dst)
	}
}
