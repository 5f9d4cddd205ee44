package synth

import (
	"fmt"
	"io"
	"slices"

	"outrider/trace"
)

// New makes a trace of a kind. It holds no resource and cannot fail once it is
// made. For one goroutine at a time, as any trace.Stream.
func New(kind Kind, options Options) (trace.Stream, error) {
	if !slices.Contains(Kinds(), kind) {
		return nil, fmt.Errorf("synth: there is no kind %q, want one of %q", kind, Kinds())
	}
	o := options.defaults(kind)
	o.Shape.LayerIDs = slices.Clone(o.Shape.LayerIDs)
	if err := o.validate(kind); err != nil {
		return nil, fmt.Errorf("synth: %s: %w", kind, err)
	}
	return newStream(kind, o), nil
}

// Purposes of random numbers, so that one does not shift the others.
const (
	purposeStream = iota
	purposeOrder
	purposeToken
)

type stream struct {
	kind   Kind
	o      Options
	header trace.Header
	rng    random
	rows   rows
	tokens ranks
	gates  gates
	before []int32 // the choices for the token before, in this sequence
	seq    int
	pos    int
	domain int
	leave  uint64 // the chance that a token is the first of another domain
}

func newStream(kind Kind, o Options) *stream {
	return &stream{
		kind: kind, o: o, header: o.header(kind),
		rng:    newRandom(o.Seed, purposeStream),
		rows:   newRows(kind, &o),
		tokens: newRanks(o.Vocabulary, 1),
		gates:  newGates(o.Shape.TopK),
		before: make([]int32, o.Shape.Layers*o.Shape.TopK),
		leave:  share(1 / float64(o.Dwell)),
	}
}

// Header describes the trace.
func (s *stream) Header() trace.Header { return s.header }

// Next makes the next token.
func (s *stream) Next(a *trace.Activation) error {
	if s.seq == s.o.Sequences {
		return io.EOF
	}
	s.step()
	n := len(s.before)
	a.Seq, a.Pos, a.Phase = int64(s.seq), int64(s.pos), trace.Decode
	if s.pos < s.o.Prompt {
		a.Phase = trace.Prefill
	}
	a.Token = s.token()
	a.Experts = slices.Grow(a.Experts[:0], n)[:n]
	a.Weights = slices.Grow(a.Weights[:0], n)[:n]
	s.route(a)
	copy(s.before, a.Experts)
	s.pos++
	if s.pos == s.length() {
		s.seq, s.pos = s.seq+1, 0
	}
	return nil
}

// length is that of the sequence at hand; the first ones take what is left over.
func (s *stream) length() int {
	n := s.o.Tokens / s.o.Sequences
	if s.seq < s.o.Tokens%s.o.Sequences {
		n++
	}
	return n
}

// step moves to the token's domain.
func (s *stream) step() {
	switch {
	case s.o.Domains == 1:
	case s.pos == 0:
		s.domain = int(s.rng.below(uint64(s.o.Domains)))
	case s.rng.chance(s.leave):
		s.domain = (s.domain + 1 + int(s.rng.below(uint64(s.o.Domains-1)))) % s.o.Domains
	}
}

// token draws a token id. Each domain's most frequent one is another.
func (s *stream) token() int32 {
	id := s.tokens.draw(s.rng)
	return int32((uint64(id) + uint64(s.domain)*uint64(s.o.Vocabulary)/uint64(s.o.Domains)) % uint64(s.o.Vocabulary))
}

func (s *stream) route(a *trace.Activation) {
	k := s.o.Shape.TopK
	at := place{domain: s.domain, token: a.Token}
	for l := range s.o.Shape.Layers {
		row := a.Experts[l*k : (l+1)*k]
		at.layer = l
		if s.pos > 0 {
			at.past = s.before[l*k : (l+1)*k]
		}
		if l > 0 {
			at.below = a.Experts[(l-1)*k : l*k]
		}
		s.rows.draw(s.rng, &at, row)
		s.gates.draw(s.rng, a.Weights[l*k:(l+1)*k])
	}
}
