package runtime

import (
	"context"
	"sync/atomic"

	"outrider/router"
	"outrider/trace"
)

// Session is one sequence of tokens. Its calls follow the forward passes of the
// model: Step (optional), then Use for each layer in execution order. A session
// is used from one goroutine at a time; any number of sessions may run at once.
type Session struct {
	rt     *Runtime
	number int64
	closed atomic.Bool
	last   int  // layer of the latest use, Layers before the first
	void   bool // rolled back, and no pass begun since
	pos    int64
	record *recorder
	waits  int       // claims that wait for room; guarded by room.mu
	one    [1]Routed // so that Use does not allocate
}

// Routed is what the router of one layer chose for the tokens of one session.
type Routed struct {
	Session *Session
	Choices []router.Choice // one a token of the pass
}

// NewSession starts a sequence.
func (rt *Runtime) NewSession() *Session {
	return &Session{rt: rt, number: rt.sessions.Add(1) - 1, last: rt.shape.Layers}
}

// Step starts a pass and tells what is known before its first layer runs: the
// phase and the tokens' ids (nil if the runner does not tell). It is optional;
// with it, experts of the first layers can be read before their routers run, and
// those of layers that choose by the token's number alone are known, where the
// source has their tables (layout.HashTable). Tokens are not kept.
func (s *Session) Step(phase trace.Phase, tokens []int32) {
	if s.closed.Load() {
		return
	}
	s.finishPass()
	s.void = false
	s.record.begin(phase, tokens, s.pos)
	s.rt.forecast.begin(s, phase, tokens)
}

// Use tells what the router of a layer chose in this pass and starts bringing
// those experts. It never waits. Choices are not kept; their weights may be nil.
func (s *Session) Use(ctx context.Context, layer int, choices []router.Choice) (Use, error) {
	s.one[0] = Routed{Session: s, Choices: choices}
	use, err := s.rt.Use(ctx, layer, s.one[:])
	s.one[0] = Routed{}
	return use, err
}

// Close ends the sequence: its history is dropped and its recorded trace is
// complete. It returns what failed while recording. A second Close does nothing.
func (s *Session) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.finishPass()
	s.rt.forecast.end(s)
	return s.record.err()
}

// Record appends every later pass of the session to w, one activation a token,
// when the pass ends. w is used only from the session's goroutine; the caller
// closes it after the session. Give it the header of Runtime.TraceHeader. What
// fails while recording is returned by Close and stops nothing else.
func (s *Session) Record(w trace.Sink) {
	s.record = newRecorder(w, s.rt.shape, s.number)
}

// entered notes that the session's pass reached a layer; a layer that is not
// behind the latest one starts a pass by itself, and so does any after a rollback.
func (s *Session) entered(layer int, choices []router.Choice) {
	if s.void || layer <= s.last && s.last < s.rt.shape.Layers {
		s.Step(trace.PhaseUnknown, nil)
	}
	if layer == 0 || s.last == s.rt.shape.Layers {
		s.pos += int64(len(choices))
	}
	s.last = layer
	s.record.observe(layer, choices)
}

func (s *Session) finishPass() {
	s.record.flush()
	s.last = s.rt.shape.Layers
}

// TraceHeader is the header of a trace recorded from sessions of this runtime.
// Clear Weights if the runner does not tell gate weights.
func (rt *Runtime) TraceHeader() trace.Header {
	return trace.Header{Model: rt.model, Shape: rt.shape, Weights: true, Tokens: true, Source: "outrider"}
}
