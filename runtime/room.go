package runtime

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// room lends the budget to uses: each claims what all its experts need before it
// holds any, so that no two uses can wait for each other. Claims are served in the
// order they came. The size may change at any time; what was lent before stays
// lent. It is pure bookkeeping: memory is the cache's.
type room struct {
	mu      sync.Mutex
	size    int64    // bytes that may be lent
	lent    int64    // more than size only after that was lowered
	held    []*claim // lent and not given back
	waiting []*claim // first come, first served
}

// claim is what one use asks of the room. The zero value asks for nothing.
type claim struct {
	callers []*Session // whose goroutine the use belongs to
	all     int64      // bytes of all its experts
	slot    int64      // bytes of one
	got     int64      // bytes lent: all, or fewer if the pass goes by waves; 0 before
	ready   chan error // while it waits: answered once
}

// try lends at once what the claim asks for, if there is as much and nobody waits.
func (r *room) try(c *claim) bool {
	if c.all == 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting) == 0 && r.lendLocked(c)
}

// wait lends to the claim as soon as its turn has come. It ends early with the
// context's cause, with ErrClosed when closed ends, and with ErrRoomHeld.
func (r *room) wait(ctx context.Context, closed <-chan struct{}, c *claim) error {
	ready := make(chan error, 1)
	r.mu.Lock()
	c.ready = ready
	r.waiting = append(r.waiting, c)
	for _, s := range c.callers {
		s.waits++
	}
	r.serveLocked()
	r.mu.Unlock()
	select {
	case err := <-ready:
		return err
	case <-ctx.Done():
		return r.leave(c, ready, context.Cause(ctx))
	case <-closed:
		return r.leave(c, ready, ErrClosed)
	}
}

// leave takes a claim out of the queue. One that was answered meanwhile keeps the
// answer.
func (r *room) leave(c *claim, ready <-chan error, why error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.ready == nil {
		return <-ready
	}
	i := slices.Index(r.waiting, c)
	r.waiting = slices.Delete(r.waiting, i, i+1)
	r.answeredLocked(c)
	r.serveLocked() // it may have stood in others' way
	return why
}

// giveBack ends a claim. It reports whether more was lent than the room's size,
// which is to say that what comes back is to leave the budget.
func (r *room) giveBack(c *claim) (over bool) {
	if c.got == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	over = r.lent > r.size
	r.lent -= c.got
	c.got = 0
	i := slices.Index(r.held, c)
	last := len(r.held) - 1
	r.held[i], r.held[last] = r.held[last], nil
	r.held = r.held[:last]
	r.serveLocked()
	return over
}

// resize sets the size and returns what is lent now: more than the size where
// uses still hold what they got before. Nothing more is lent until that fits.
func (r *room) resize(size int64) (lent int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.size = size
	lent = r.lent
	r.serveLocked()
	return lent
}

// state is the size, and how much is lent.
func (r *room) state() (size, lent int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.size, r.lent
}

// serveLocked serves those that wait, as far as the room goes.
func (r *room) serveLocked() {
	for len(r.waiting) > 0 {
		c := r.waiting[0]
		var err error
		if !r.lendLocked(c) {
			if !r.stuckLocked() {
				return
			}
			err = r.lendRestLocked(c)
		}
		r.waiting = slices.Delete(r.waiting, 0, 1)
		ready := c.ready
		r.answeredLocked(c)
		ready <- err
	}
}

// lendLocked lends all the claim's bytes, or the whole room where that is smaller.
func (r *room) lendLocked(c *claim) bool {
	need := min(c.all, r.size)
	if need > r.size-r.lent {
		return false
	}
	r.takeLocked(c, need)
	return true
}

// stuckLocked reports that nobody is left who could give anything back: all that is
// lent belongs to callers that wait themselves.
func (r *room) stuckLocked() bool {
	for _, c := range r.held {
		if !slices.ContainsFunc(c.callers, func(s *Session) bool { return s.waits > 0 }) {
			return false
		}
	}
	return true
}

// lendRestLocked lends what there is, to be used in waves.
func (r *room) lendRestLocked(c *claim) error {
	rest := r.size - r.lent
	if rest < c.slot {
		return fmt.Errorf("%w: %d of %d bytes are lent to uses of callers that all wait for more; release a use before waiting for the next, or raise the budget",
			ErrRoomHeld, r.lent, r.size)
	}
	r.takeLocked(c, rest)
	return nil
}

func (r *room) takeLocked(c *claim, bytes int64) {
	c.got = bytes
	r.lent += bytes
	r.held = append(r.held, c)
}

// answeredLocked notes that the claim waits no more.
func (r *room) answeredLocked(c *claim) {
	c.ready = nil
	for _, s := range c.callers {
		s.waits--
	}
}
