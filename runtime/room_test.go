package runtime

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// waitFor begins a wait for so many bytes, and tells when it was answered.
func waitFor(ctx context.Context, r *room, c *claim) <-chan error {
	answer := make(chan error, 1)
	go func() { answer <- r.wait(ctx, nil, c) }()
	synctest.Wait()
	return answer
}

// answered is the answer so far; false if there is none.
func answered(answer <-chan error) (error, bool) {
	synctest.Wait()
	select {
	case err := <-answer:
		return err, true
	default:
		return nil, false
	}
}

func TestRoomLendsInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &room{size: 10}
		first, small := &claim{all: 6, slot: 2}, &claim{all: 2, slot: 2}
		if !r.try(first) || first.got != 6 {
			t.Fatalf("got %d bytes, want 6", first.got)
		}
		large := &claim{all: 30, slot: 2}
		waits := waitFor(t.Context(), r, large)
		if r.try(small) {
			t.Error("a small claim went past one that waits")
		}
		late := waitFor(t.Context(), r, small)
		if _, ok := answered(waits); ok {
			t.Error("the whole room was lent while 6 of 10 bytes were not there")
		}
		if r.giveBack(first) {
			t.Error("more was lent than there is, want not")
		}
		if err, ok := answered(waits); !ok || err != nil || large.got != 10 {
			t.Errorf("got %d bytes (%v, answered %t), want the whole room of 10", large.got, err, ok)
		}
		if _, ok := answered(late); ok {
			t.Error("lent more than there is")
		}
		r.giveBack(large)
		if err, ok := answered(late); !ok || err != nil || small.got != 2 {
			t.Errorf("got %d bytes (%v, answered %t), want 2", small.got, err, ok)
		}
	})
}

func TestRoomChangesItsSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &room{size: 10}
		held := &claim{all: 8, slot: 2}
		r.try(held)
		if lent := r.resize(4); lent != 8 {
			t.Errorf("got %d bytes lent, want the 8 that stay lent", lent)
		}
		next := &claim{all: 6, slot: 2}
		waits := waitFor(t.Context(), r, next)
		if _, ok := answered(waits); ok {
			t.Error("lent more than there is")
		}
		if !r.giveBack(held) {
			t.Error("what came back was over the size, and nobody is told")
		}
		if err, ok := answered(waits); !ok || err != nil || next.got != 4 {
			t.Errorf("got %d bytes (%v), want the 4 that there are now", next.got, err)
		}

		more := waitFor(t.Context(), r, &claim{all: 6, slot: 2})
		if _, ok := answered(more); ok {
			t.Error("lent more than there is")
		}
		r.resize(10)
		if err, ok := answered(more); !ok || err != nil {
			t.Errorf("a larger room did not serve who waits: %v", err)
		}
	})
}

// A claim that leaves the queue must not keep those behind it.
func TestRoomGoesOnWhenAWaiterLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &room{size: 10}
		r.try(&claim{all: 6, slot: 2})
		ctx, cancel := context.WithCancelCause(t.Context())
		large := waitFor(ctx, r, &claim{all: 10, slot: 2})
		small := waitFor(t.Context(), r, &claim{all: 4, slot: 2})
		if _, ok := answered(small); ok {
			t.Error("went past one that waits")
		}
		why := errors.New("enough")
		cancel(why)
		if err, ok := answered(large); !ok || !errors.Is(err, why) {
			t.Errorf("got %v, want the context's cause", err)
		}
		if err, ok := answered(small); !ok || err != nil {
			t.Errorf("got %v (answered %t), want its bytes", err, ok)
		}
	})
}

func TestRoomIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &room{size: 4}
		r.try(&claim{all: 4, slot: 2})
		closed := make(chan struct{})
		answer := make(chan error)
		go func() { answer <- r.wait(t.Context(), closed, &claim{all: 2, slot: 2}) }()
		synctest.Wait()
		close(closed)
		if err := <-answer; !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
		if len(r.waiting) != 0 {
			t.Errorf("%d claims wait, want none", len(r.waiting))
		}
	})
}

// No claim waits for what only its own caller, or others that wait as well, can
// give back: it gets what is left, or an error.
func TestRoomNeverWaitsForItsOwnCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := new(Session), new(Session), new(Session)
		r := &room{size: 10}
		r.try(&claim{all: 4, slot: 2, callers: []*Session{a}})
		byB := &claim{all: 4, slot: 2, callers: []*Session{b, c}}
		r.try(byB)

		second := &claim{all: 4, slot: 2, callers: []*Session{a}}
		ofA := waitFor(t.Context(), r, second)
		if _, ok := answered(ofA); ok {
			t.Error("answered, while another caller may give back")
		}
		third := &claim{all: 6, slot: 2, callers: []*Session{c}}
		ofB := waitFor(t.Context(), r, third)
		if err, ok := answered(ofA); !ok || err != nil || second.got != 2 {
			t.Errorf("got %d bytes (%v), want the 2 that are left", second.got, err)
		}
		if _, ok := answered(ofB); ok {
			t.Error("answered, while a may give back")
		}
		last := waitFor(t.Context(), r, &claim{all: 2, slot: 2, callers: []*Session{a}})
		if err, ok := answered(ofB); !ok || !errors.Is(err, ErrRoomHeld) {
			t.Errorf("got %v, want ErrRoomHeld: all that is lent belongs to callers that wait", err)
		}
		if _, ok := answered(last); ok {
			t.Error("answered, while b, which waits no more, may give back")
		}
		r.giveBack(byB)
		if err, ok := answered(last); !ok || err != nil {
			t.Errorf("got %v (answered %t), want its bytes", err, ok)
		}
		if a.waits != 0 || b.waits != 0 || c.waits != 0 {
			t.Errorf("got %d, %d, %d waits left, want none", a.waits, b.waits, c.waits)
		}
	})
}

// Many callers claim, hold two at a time, give up and give back, while the size
// changes: all come to an end, and never is more lent than the largest size.
func TestRoomUnderRandomUse(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := &room{size: 20}
			stop := make(chan struct{})
			var callers, sizes sync.WaitGroup
			for n := range uint64(6) {
				callers.Go(func() { randomCaller(t, r, rand.New(rand.NewPCG(seed, n))) })
			}
			sizes.Go(func() {
				for rnd := rand.New(rand.NewPCG(seed, 99)); ; {
					select {
					case <-stop:
						return
					case <-time.After(time.Duration(rnd.IntN(5)) * time.Millisecond):
						r.resize(int64(4 + rnd.IntN(30)))
					}
				}
			})
			callers.Wait()
			close(stop)
			sizes.Wait()
			if r.lent != 0 || len(r.held) != 0 || len(r.waiting) != 0 {
				t.Errorf("seed %d: %d bytes lent to %d claims, %d wait: want none", seed, r.lent, len(r.held), len(r.waiting))
			}
		})
	}
}

func randomCaller(t *testing.T, r *room, rnd *rand.Rand) {
	s := new(Session)
	var held []*claim
	for range 200 {
		c := &claim{all: int64(2 * (1 + rnd.IntN(8))), slot: 2, callers: []*Session{s}}
		if !r.try(c) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(20))*time.Millisecond)
			err := r.wait(ctx, nil, c)
			cancel()
			if (err == nil) != (c.got > 0) {
				t.Errorf("got %d bytes and error %v, want one of the two", c.got, err)
			}
		}
		if c.got > 0 {
			held = append(held, c)
		}
		time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
		if size, lent := r.state(); lent > max(size, 34) {
			t.Errorf("%d bytes are lent, the room never had more than 34", lent)
		}
		if len(held) > 1 || rnd.IntN(2) == 0 {
			for _, c := range held {
				r.giveBack(c)
			}
			held = held[:0]
		}
	}
	for _, c := range slices.Backward(held) {
		r.giveBack(c)
	}
}
