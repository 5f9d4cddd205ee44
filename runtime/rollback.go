package runtime

import "fmt"

// Rollback drops the last tokens of the sequence, as speculative decoding does with
// those that it rejects: the next pass goes on in the place of the first of them.
// It ends the pass; a pass that was left in the middle is rolled back whole or in
// part like any other. Tokens count from the first layer on.
//
// What the sequence was expected to use next is void: reads ahead that only it
// wanted and that have not begun are withdrawn, and it asks for nothing until its
// next Step or Use. Experts that were read stay in memory by what the forecast
// says of them.
//
// What the routers chose for the dropped tokens was really chosen, and is not
// unlearned: it counts in Stats and in what the predictor knows of all sequences,
// and a predictor's history of this one goes on from it, since no predictor
// can take a pass back. That costs forecast quality for a token or two, never
// correctness.
//
// A recorded trace leaves out dropped tokens of the latest pass. Those of earlier
// passes are written already: they stay, and their positions come once more.
//
// Errors: a negative number, one above the tokens of the sequence, ErrClosed; then
// nothing changes. Rolling back 0 tokens of a sequence voids what was expected.
func (s *Session) Rollback(tokens int) error {
	switch {
	case s.rt.ctx.Err() != nil:
		return ErrClosed
	case s.closed.Load():
		return fmt.Errorf("runtime: rollback: the session is closed")
	case tokens < 0 || int64(tokens) > s.pos:
		return fmt.Errorf("runtime: rollback: %d tokens, want 0 to the %d of the sequence", tokens, s.pos)
	}
	s.record.drop(tokens)
	s.finishPass()
	s.pos -= int64(tokens)
	s.void = true
	s.rt.forecast.rollback(s)
	return nil
}

// rollback tells that what the session was expected to do is void. Like the end of
// a session it is never dropped, or the reads that it withdraws would go on; one
// that waits already says the same.
func (f *forecaster) rollback(s *Session) {
	if f == nil || f.rollsBack(s) {
		return
	}
	e := f.take(eventRollback, s)
	e.step = f.rt.step.Load()
	f.push(e)
}

// rollsBack reports whether the session's latest event that waits is a rollback.
func (f *forecaster) rollsBack(s *Session) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := len(f.queue) - 1; i >= 0; i-- {
		if f.queue[i].session == s.number {
			return f.queue[i].kind == eventRollback
		}
	}
	return false
}
