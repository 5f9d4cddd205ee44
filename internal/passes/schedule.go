// Package passes deals a trace out into forward passes, as a server would run
// them: token by token, prompts in chunks, several sequences in a batch. The
// simulation and the replay with real reads take the same passes.
package passes

import (
	"iter"

	"outrider/layout"
	"outrider/router"
	"outrider/trace"
)

// Options of a schedule. The zero value takes the tokens one by one.
type Options struct {
	MaxTokens int // tokens dealt out; 0 means all
	Batch     int // sequences in one pass; 0 and 1: one, in the order of the trace
	Chunk     int // prefill tokens of one sequence in one pass; 0 means 1
}

// Schedule deals out a trace. Not safe for concurrent use.
type Schedule struct {
	trace  *trace.Trace
	opts   Options
	tokens int

	rows   map[int64][]int32 // by sequence, its tokens that were not dealt out yet
	order  []int64           // sequences by first appearance
	active []int64           // sequences of the batch
	next   int               // token of the trace (alone), or sequence of order (batch)
	parts  []Part
	ids    []int32 // scratch of Part.Begin
}

// Part is what one sequence has in a pass.
type Part struct {
	Seq    int64
	Tokens []int32 // of the trace, in order
	Last   bool    // the sequence ends with them
}

// New makes a schedule; the trace is kept and must not change.
func New(t *trace.Trace, o Options) *Schedule {
	o.Batch, o.Chunk = max(o.Batch, 1), max(o.Chunk, 1)
	s := &Schedule{trace: t, opts: o, tokens: t.Len()}
	if o.MaxTokens > 0 {
		s.tokens = min(s.tokens, o.MaxTokens)
	}
	s.Rewind()
	return s
}

// Tokens is how many tokens are dealt out in all.
func (s *Schedule) Tokens() int { return s.tokens }

// Shape is the trace's.
func (s *Schedule) Shape() layout.Shape { return s.trace.Header.Shape }

// Rewind starts over.
func (s *Schedule) Rewind() {
	s.rows, s.order, s.active, s.next = make(map[int64][]int32), s.order[:0], s.active[:0], 0
	for i := range s.tokens {
		seq := s.trace.Seqs[i]
		if len(s.rows[seq]) == 0 {
			s.order = append(s.order, seq)
		}
		s.rows[seq] = append(s.rows[seq], int32(i))
	}
}

// Next is the next pass, nil at the end. It is valid until the next call.
//
// Alone, tokens run in the order of the trace, prefill tokens of a sequence in
// chunks. In a batch, the first sequences of the trace run together, each with its
// next token or chunk; the next one joins when one ends.
func (s *Schedule) Next() []Part {
	s.parts = s.parts[:0]
	if s.opts.Batch == 1 {
		for ; s.next < s.tokens; s.next++ {
			seq := s.trace.Seqs[s.next]
			if rows := s.rows[seq]; len(rows) > 0 && rows[0] == int32(s.next) {
				s.parts = append(s.parts, s.take(seq))
				return s.parts
			}
		}
		return nil
	}
	for len(s.active) < s.opts.Batch && s.next < len(s.order) {
		s.active = append(s.active, s.order[s.next])
		s.next++
	}
	staying := s.active[:0]
	for _, seq := range s.active {
		p := s.take(seq)
		s.parts = append(s.parts, p)
		if !p.Last {
			staying = append(staying, seq)
		}
	}
	s.active = staying
	if len(s.parts) == 0 {
		return nil
	}
	return s.parts
}

// take is the sequence's next token, or the next chunk of its prompt.
func (s *Schedule) take(seq int64) Part {
	rows := s.rows[seq]
	n := 1
	if s.trace.Phases[rows[0]] == trace.Prefill {
		for n < min(s.opts.Chunk, len(rows)) && s.trace.Phases[rows[n]] == trace.Prefill {
			n++
		}
	}
	s.rows[seq] = rows[n:]
	return Part{Seq: seq, Tokens: rows[:n:n], Last: n == len(rows)}
}

// Known is what a part's sequence knows when its pass begins: the phase, and the
// ids of its tokens, nil unless all are known; valid until the next call. A single
// token is decoded, whatever its phase was when the trace was recorded.
func (s *Schedule) Known(p Part) (trace.Phase, []int32) {
	phase := trace.Decode
	if len(p.Tokens) > 1 {
		phase = s.trace.Phases[p.Tokens[0]]
	}
	s.ids = s.ids[:0]
	for _, i := range p.Tokens {
		id := s.trace.Tokens[i]
		if id < 0 {
			return phase, nil
		}
		s.ids = append(s.ids, id)
	}
	return phase, s.ids
}

// Union is what the routers of one layer chose in a pass.
type Union struct {
	Choices [][]router.Choice // of each part, one a token
	All     []router.Choice   // the same, of all parts
	Experts []int32           // each expert once, in order of first appearance

	stamp []int // by expert, the gathering that saw it last
	now   int
}

// NewUnion makes an empty one for a model's shape.
func NewUnion(shape layout.Shape) *Union { return &Union{stamp: make([]int, shape.Experts)} }

// Gather collects the choices of a layer. What it holds is valid until the next
// call; ids and weights lie in the trace.
func (u *Union) Gather(s *Schedule, parts []Part, layer int) {
	u.now++
	u.Choices, u.All, u.Experts = u.Choices[:0], u.All[:0], u.Experts[:0]
	for _, p := range parts {
		for _, i := range p.Tokens {
			ids, weights := s.trace.Row(int(i), layer)
			u.All = append(u.All, router.Choice{Experts: ids, Weights: weights})
			for _, x := range ids {
				if u.stamp[x] != u.now {
					u.stamp[x] = u.now
					u.Experts = append(u.Experts, x)
				}
			}
		}
	}
	rest := u.All
	for _, p := range parts {
		u.Choices = append(u.Choices, rest[:len(p.Tokens)])
		rest = rest[len(p.Tokens):]
	}
}

// Executions are the layer executions of all passes that are left: the layer, and
// each expert once, valid until the next.
func (s *Schedule) Executions() iter.Seq2[int, []int32] {
	return func(yield func(int, []int32) bool) {
		u := NewUnion(s.Shape())
		for parts := s.Next(); parts != nil; parts = s.Next() {
			for layer := range s.Shape().Layers {
				u.Gather(s, parts, layer)
				if !yield(layer, u.Experts) {
					return
				}
			}
		}
	}
}

// Width is the most experts that a layer execution can use.
func (s *Schedule) Width() int {
	shape := s.Shape()
	if s.opts.Batch == 1 && s.opts.Chunk == 1 {
		return shape.TopK
	}
	return min(shape.Experts, shape.TopK*s.opts.Batch*s.opts.Chunk)
}

// Optimum is Belady's order over the passes of the schedule, which is rewound.
func (s *Schedule) Optimum() (*router.Optimum, error) {
	defer s.Rewind()
	s.Rewind()
	return router.NewOptimumOf(s.Shape(), s.Width(), s.Executions())
}
