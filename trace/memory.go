package trace

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// Trace is a whole trace in memory, for simulation, evaluation and tests. One
// token costs 21 bytes, 4 bytes an expert id and, where known, 4 a gate weight:
// about 650 bytes with 26 layers and top-6. Concurrent reads are safe as long as
// nobody appends.
//
// Entry i of each slice is token i. Experts and Weights hold
// Shape.Layers*Shape.TopK entries a token, as in Activation.
type Trace struct {
	Header  Header
	Seqs    []int64
	Pos     []int64
	Phases  []Phase
	Tokens  []int32   // -1 where unknown
	Experts []int32   // -1 fills rows up
	Weights []float32 // nil unless Header.Weights
	check   checker
}

// NewTrace makes an empty trace.
func NewTrace(h Header) (*Trace, error) {
	if err := h.Validate(); err != nil {
		return nil, err
	}
	t := &Trace{Header: h}
	t.check = newChecker(&t.Header)
	return t, nil
}

// ReadAll reads up to max tokens of s into memory; 0 or less means all. Reaching
// max is no error. When s fails, the tokens before the failure are returned
// along with the error, so that a torn trace can still be used.
func ReadAll(s Stream, max int) (*Trace, error) {
	if max <= 0 {
		max = math.MaxInt
	}
	t, err := NewTrace(s.Header())
	if err != nil {
		return nil, err
	}
	var a Activation
	for t.Len() < max {
		if err := s.Next(&a); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return t, err
		}
		if err := t.Append(&a); err != nil {
			return t, err
		}
	}
	return t, nil
}

// Append copies a token to the end of the trace. What the header says the trace
// does not carry (weights, token ids) is left out; an unknown phase becomes the
// header's. A token that does not fit is refused with ErrActivation.
func (t *Trace) Append(a *Activation) error {
	if t.check.header == nil {
		// A literal Trace may lack the checker, or hold a header never checked.
		if err := t.Header.Validate(); err != nil {
			return err
		}
		t.check = newChecker(&t.Header)
	}
	if err := t.check.check(a); err != nil {
		return fmt.Errorf("trace: %w: token %d: %w", ErrActivation, t.Len(), err)
	}
	phase, token := a.Phase, a.Token
	if phase == PhaseUnknown {
		phase = t.Header.Phase
	}
	if !t.Header.Tokens {
		token = -1
	}
	t.Seqs = append(t.Seqs, a.Seq)
	t.Pos = append(t.Pos, a.Pos)
	t.Phases = append(t.Phases, phase)
	t.Tokens = append(t.Tokens, token)
	t.Experts = append(t.Experts, a.Experts...)
	if t.Header.Weights {
		t.Weights = append(t.Weights, a.Weights...)
	}
	return nil
}

// Len is the number of tokens.
func (t *Trace) Len() int { return len(t.Seqs) }

// Row is what the router of a layer chose for token i: the ids, and their
// weights or nil. The slices point into the trace; fill is cut off.
func (t *Trace) Row(i, layer int) ([]int32, []float32) {
	topK := t.Header.Shape.TopK
	from := (i*t.Header.Shape.Layers + layer) * topK
	n := topK
	for n > 0 && t.Experts[from+n-1] < 0 {
		n--
	}
	to := from + n
	if len(t.Weights) == 0 {
		return t.Experts[from:to:to], nil
	}
	return t.Experts[from:to:to], t.Weights[from:to:to]
}

// At makes a the token i. Unlike Stream.Next it copies nothing: a's slices then
// point into the trace and must not be changed, nor handed to a Stream.
func (t *Trace) At(i int, a *Activation) {
	n := t.Header.ids()
	*a = Activation{
		Seq: t.Seqs[i], Pos: t.Pos[i], Phase: t.Phases[i], Token: t.Tokens[i],
		Experts: t.Experts[i*n : (i+1)*n : (i+1)*n],
	}
	if len(t.Weights) > 0 {
		a.Weights = t.Weights[i*n : (i+1)*n : (i+1)*n]
	}
}

// WithoutTokens is the trace as a runner would tell it that tells no token ids. It
// shares all else with t, and nothing may be appended to it.
func (t *Trace) WithoutTokens() *Trace {
	hidden := &Trace{Header: t.Header, Seqs: t.Seqs, Pos: t.Pos, Phases: t.Phases, Experts: t.Experts, Weights: t.Weights}
	hidden.Header.Tokens = false
	hidden.Tokens = slices.Repeat([]int32{-1}, t.Len())
	return hidden
}

// Stream delivers the trace from its first token, copying each one. Several
// streams of one trace may run at once.
func (t *Trace) Stream() Stream { return &memoryStream{trace: t} }

type memoryStream struct {
	trace *Trace
	next  int
}

// Header is the trace's.
func (s *memoryStream) Header() Header { return s.trace.Header }

// Next copies the next token into a.
func (s *memoryStream) Next(a *Activation) error {
	if s.next >= s.trace.Len() {
		return io.EOF
	}
	var at Activation
	s.trace.At(s.next, &at)
	at.Experts = append(a.Experts[:0], at.Experts...)
	at.Weights = append(a.Weights[:0], at.Weights...)
	*a = at
	s.next++
	return nil
}
