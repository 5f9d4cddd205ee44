package runtime

import (
	"testing"

	"outrider/trace"
)

// However long the forecaster is busy, rollbacks are kept and do not pile up.
func TestRollbacksAreKeptAndDoNotPileUp(t *testing.T) {
	rt := new(Runtime)
	f := &forecaster{rt: rt, wake: make(chan struct{}, 1)}
	a, b := &Session{rt: rt, number: 0}, &Session{rt: rt, number: 1}
	for range 10 * backlog {
		f.begin(a, trace.Decode, nil)
	}
	for range 100 {
		f.rollback(a)
		f.rollback(b)
	}
	if n := len(f.queue); n != backlog+2 {
		t.Errorf("%d events wait, want %d and one rollback of each session", n, backlog)
	}
	for i, e := range f.queue[backlog:] {
		if e.kind != eventRollback || e.session != int64(i) {
			t.Errorf("got event %d of session %d, want the rollback of session %d", e.kind, e.session, i)
		}
	}
}
