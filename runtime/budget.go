package runtime

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// budget is how much memory there may be for experts, now and at most. The room
// follows it at once; the cache as soon as what uses were lent before fits, so
// that the memory which a use was promised is always there.
type budget struct {
	now     atomic.Int64 // bytes
	limit   atomic.Int64 // as configured: by Options or SetBudget
	settled chan struct{}
	done    chan struct{} // closed when tend has ended

	mu       sync.Mutex // makes changes one after another; held over the cache's SetBudget
	cache    int64      // what the cache was set to
	pressure *pressure  // nil: nobody watches
}

// start sets what Open found.
func (b *budget) start(bytes int64, p *pressure) {
	b.now.Store(bytes)
	b.limit.Store(bytes)
	b.cache, b.pressure = bytes, p
	b.settled, b.done = make(chan struct{}, 1), make(chan struct{})
}

// settle has tend look again whether the cache may shrink. It does not wait.
func (b *budget) settle() {
	select {
	case b.settled <- struct{}{}:
	default:
	}
}

// SetBudget changes the hard limit for all expert memory for good.
//
// A lower one takes effect at once for all that nobody holds, and later uses share
// it; a use under way keeps what it was lent until it is released, and memory over
// the new budget goes back to the system then. A pass that needs more than the new
// budget is served in waves. Where the runtime watches memory pressure (see
// Options.FixedBudget) and has shrunk the budget, a higher limit is grown into as
// memory allows. SetBudget waits for nobody and may be called from any goroutine.
//
// Errors: experts.ErrBelowFloor, with the bytes needed, for a budget too small for
// one layer of one token, experts.ErrLockLimit for one that Options.Lock cannot
// lock, and ErrClosed; nothing changes then.
func (rt *Runtime) SetBudget(bytes int64) error {
	b := &rt.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if rt.ctx.Err() != nil {
		return ErrClosed
	}
	if bytes < rt.cache.Floor() {
		return fmt.Errorf("runtime: set budget: %w", rt.cache.SetBudget(bytes)) // says why not
	}
	before := b.limit.Load()
	if err := rt.setBudgetLocked(b.pressure.allowed(bytes)); err != nil {
		b.pressure.allowed(before)
		if rt.ctx.Err() != nil { // closed meanwhile
			return ErrClosed
		}
		return fmt.Errorf("runtime: set budget: %w", err)
	}
	b.limit.Store(bytes)
	rt.log.Info("budget set", "limit_bytes", bytes, "before_bytes", before, "budget_bytes", b.now.Load())
	return nil
}

// setBudgetLocked moves room and cache to another budget. The cache is never
// smaller than what the room has lent: it grows first and shrinks last.
func (rt *Runtime) setBudgetLocked(bytes int64) error {
	now, lent := rt.room.state()
	if bytes > now {
		if err := rt.setCacheLocked(max(bytes, lent)); err != nil {
			return err
		}
	}
	lent = rt.room.resize(bytes)
	rt.budget.now.Store(bytes)
	if bytes < now {
		return rt.setCacheLocked(max(bytes, lent))
	}
	return nil
}

func (rt *Runtime) setCacheLocked(bytes int64) error {
	if bytes == rt.budget.cache {
		return nil
	}
	if err := rt.cache.SetBudget(bytes); err != nil {
		return err
	}
	rt.budget.cache = bytes
	return nil
}

// settleBudget takes from the cache what is over the budget and not lent any more.
func (rt *Runtime) settleBudget() {
	rt.budget.mu.Lock()
	defer rt.budget.mu.Unlock()
	size, lent := rt.room.state()
	_ = rt.setCacheLocked(max(size, lent)) // fails only when closed, with everything given back
}

// tend does until the context ends what has to be done beside the uses: it lets
// the cache shrink, off the runners' goroutines, and watches the memory's pressure.
func (rt *Runtime) tend(ctx context.Context) {
	defer close(rt.budget.done)
	var tick <-chan time.Time
	if every := rt.budget.pressure.every(); every > 0 {
		t := time.NewTicker(every)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-rt.budget.settled:
			rt.settleBudget()
		case now := <-tick:
			rt.watch(now)
		}
	}
}
