package runtime

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"outrider/experts"
	"outrider/layout"
	"outrider/prefetcher"
)

// Use is the set of experts that one layer needs in one pass. It ends with
// Release, exactly once; later calls find ErrReleased and change nothing.
// Used from the goroutine that made it.
type Use struct {
	u   *use
	gen uint32
}

// Len is the number of distinct experts.
func (v Use) Len() int {
	if v.stale() {
		return 0
	}
	return len(v.u.held)
}

// Ready yields each expert as it arrives, those in memory first, so that
// computing one overlaps with reading the others. An expert that cannot be read
// comes with an error that names file, offset, layer and expert; the loop may
// go on with the others. When the context or the runtime ends, the error
// concerns the whole use and no more experts follow.
//
// An expert stays valid until it or the use is released. A pass that uses more
// experts than the budget holds is served in waves: release each expert inside
// the loop. If the caller keeps all that fit, the loop ends with ErrNeedsWaves.
//
// A second call goes on where the first loop was left.
func (v Use) Ready(ctx context.Context) iter.Seq2[Expert, error] {
	if v.stale() {
		return func(yield func(Expert, error) bool) { yield(Expert{}, ErrReleased) }
	}
	v.u.ctx = ctx
	return v.u.ready
}

// Wait waits until all experts are in memory and returns the first error.
// Afterwards Expert and Ready deliver without waiting.
func (v Use) Wait(ctx context.Context) error {
	if v.stale() {
		return ErrReleased
	}
	u := v.u
	for have := u.arrivals(); have < len(u.held); have = u.arrivals() {
		if err := u.await(ctx, have, -1); err != nil {
			return err
		}
	}
	for i := range u.held {
		if err := u.held[i].err; err != nil {
			return err
		}
	}
	return nil
}

// Expert returns the expert with that number in the layer, and false if the
// use has none, or it has not arrived, failed, or was released.
func (v Use) Expert(index int) (Expert, bool) {
	if v.stale() {
		return Expert{}, false
	}
	for i := range v.u.held {
		if int(v.u.held[i].index) == index {
			e := Expert{u: v.u, gen: v.gen, pos: int32(i)}
			return e, v.u.lend(int32(i)) // it may be arriving just now
		}
	}
	return Expert{}, false
}

// Release ends the use: all experts still held go back, reads that only this
// use wanted are no longer waited for. A second call does nothing.
func (v Use) Release() {
	if !v.stale() {
		v.u.release()
	}
}

func (v Use) stale() bool { return v.u == nil || v.u.generation() != v.gen }

// state is where one expert of a use stands.
type state uint8

const (
	stateWanted   state = iota // not asked for yet: no room in this wave
	stateAsked                 // being read
	stateArrived               // in memory, pinned
	stateFailed                // the read failed; err says why
	stateLent                  // given to the runner
	stateReturned              // handed back
)

// held is one expert of a use.
type held struct {
	index int32
	state state
	lease experts.Lease
	err   error
	parts [][]byte          // projections that came before the rest
	holds []prefetcher.Hold // of parts
}

// use is the reusable body of a Use. Its owner's goroutine drives it; workers
// only add arrivals, under mu.
type use struct {
	rt    *Runtime
	gen   atomic.Uint32
	ready iter.Seq2[Expert, error] // made once, so that Ready does not allocate
	ctx   context.Context          // of the latest Ready

	layer   int
	quiet   bool  // neither counted nor observed: preloading
	slot    int64 // bytes charged for an expert of the layer
	claim   claim // to the runtime's room
	asked   int   // experts asked for and neither failed nor handed back
	next    int   // experts before this one were asked for
	yielded int

	stamp []uint32 // per expert: the last collection that named it
	round uint32

	mu      sync.Mutex
	held    []held  // grows only before the use is handed out
	arrived []int32 // positions in arrival order
	early   *early  // nil: projections come with their expert
	wake    chan struct{}
}

func newUse(rt *Runtime) *use {
	u := &use{rt: rt, stamp: make([]uint32, rt.shape.Experts), wake: make(chan struct{}, 1)}
	u.ready = u.iterate
	if rt.projections {
		u.early = &early{u: u}
	}
	return u
}

func (u *use) generation() uint32 { return u.gen.Load() }

// collect fills held with the distinct experts of the choices, in order of
// first mention.
func (u *use) collect(layer int, parts []Routed) error {
	u.reset(layer)
	for _, part := range parts {
		if part.Session != nil {
			u.claim.callers = append(u.claim.callers, part.Session)
		}
		for token, c := range part.Choices {
			for _, e := range c.Experts {
				if e < 0 || int(e) >= len(u.stamp) {
					return fmt.Errorf("runtime: layer %d token %d: expert %d is outside the model's 0 to %d", layer, token, e, len(u.stamp)-1)
				}
				if u.stamp[e] != u.round {
					u.stamp[e] = u.round
					u.held = append(u.held, held{index: e})
				}
			}
		}
	}
	return nil
}

// reset makes the use an empty one of a layer.
func (u *use) reset(layer int) {
	u.layer, u.slot, u.quiet = layer, u.rt.source.SlotBytes(layer), false
	u.held, u.arrived = u.held[:0], u.arrived[:0]
	u.asked, u.next, u.yielded = 0, 0, 0
	u.early.reset()
	u.claim = claim{callers: u.claim.callers[:0], slot: u.slot}
	if u.round++; u.round == 0 {
		clear(u.stamp)
		u.round = 1
	}
}

// begin starts the use at once if it can be given room without waiting.
func (u *use) begin() {
	u.claim.all = int64(len(u.held)) * u.slot
	if u.rt.room.try(&u.claim) {
		u.start()
	}
}

// needsWaves says what a runner must do that holds all that fits.
func (u *use) needsWaves() error {
	return fmt.Errorf("%w: layer %d needs %d experts of %d bytes and may hold %d bytes of a budget of %d; release each expert inside the Ready loop, or raise the budget",
		ErrNeedsWaves, u.layer, len(u.held), u.slot, u.claim.got, u.rt.budget.now.Load())
}

// start pins what is in memory and asks for the rest, as far as the reserved
// room goes. Hits come first, so that no miss of this use can evict them.
func (u *use) start() {
	hits := 0
	for i := range u.held {
		if u.full() {
			break
		}
		id := layout.ExpertID{Layer: int32(u.layer), Index: u.held[i].index}
		lease, outcome := u.rt.cache.Pin(id)
		if !outcome.Resident() {
			continue
		}
		u.asked++
		hits++
		u.mu.Lock()
		u.held[i].lease, u.held[i].state = lease, stateArrived
		u.arrived = append(u.arrived, int32(i))
		u.early.arrivedLocked(int32(i))
		u.mu.Unlock()
	}
	if !u.quiet {
		u.rt.counters.lookups.Add(int64(len(u.held)))
		u.rt.counters.hits.Add(int64(hits))
		u.rt.counters.uses.Add(1)
		if hits == len(u.held) {
			u.rt.counters.complete.Add(1)
		}
	}
	u.ask()
}

// ask asks for experts that were not asked for yet, as far as the room goes.
func (u *use) ask() {
	for ; u.next < len(u.held) && !u.full(); u.next++ {
		h := &u.held[u.next]
		u.mu.Lock()
		wanted := h.state == stateWanted
		if wanted {
			h.state = stateAsked
		}
		u.mu.Unlock()
		if !wanted {
			continue
		}
		u.asked++
		id := layout.ExpertID{Layer: int32(u.layer), Index: h.index}
		u.rt.reads.Demand(id, u.tag(u.next), u.waiter())
	}
}

func (u *use) full() bool { return int64(u.asked+1)*u.slot > u.claim.got }

// tag tells arrivals of this generation from late ones of an earlier.
func (u *use) tag(pos int) int { return int(u.generation())<<32 | pos }

// Arrived takes one demanded expert from a reader. It implements
// prefetcher.Waiter and does not block.
func (u *use) Arrived(tag int, lease experts.Lease, err error) {
	if errors.Is(err, prefetcher.ErrClosed) {
		err = ErrClosed
	}
	u.mu.Lock()
	pos := int32(tag & 0xffffffff)
	if uint32(tag>>32) != u.generation() || u.held[pos].state == stateReturned {
		u.mu.Unlock()
		if err == nil {
			lease.Release()
		}
		return
	}
	h := &u.held[pos]
	h.lease, h.err, h.state = lease, err, stateArrived
	if err != nil {
		h.state = stateFailed
	}
	u.arrived = append(u.arrived, pos)
	u.early.arrivedLocked(pos)
	u.mu.Unlock()
	u.notify()
}

func (u *use) notify() {
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

func (u *use) arrivals() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.arrived)
}

// iterate is the body of Ready.
func (u *use) iterate(yield func(Expert, error) bool) {
	ctx, gen := u.ctx, u.generation()
	for u.yielded < len(u.held) {
		if u.yielded == u.arrivals() {
			if err := u.await(ctx, u.yielded, -1); err != nil {
				yield(Expert{}, err)
				return
			}
			continue
		}
		u.mu.Lock()
		pos := u.arrived[u.yielded]
		err := u.held[pos].err
		u.mu.Unlock()
		u.yielded++
		u.lend(pos)
		if err != nil {
			u.asked--
		}
		if !yield(Expert{u: u, gen: gen, pos: pos}, err) || u.generation() != gen {
			return
		}
	}
}

// await waits until more than have experts arrived, or, if parts is not negative,
// more than that many projections. The time it takes is exposed stall.
func (u *use) await(ctx context.Context, have, parts int) error {
	began := time.Now()
	defer func() {
		if !u.quiet {
			u.rt.counters.stall.Add(int64(time.Since(began)))
		}
	}()
	if u.claim.got == 0 {
		if err := u.rt.room.wait(ctx, u.rt.ctx.Done(), &u.claim); err != nil {
			return err
		}
		u.start()
	}
	u.ask()
	for {
		switch arrived, listed, outstanding := u.progress(); {
		case arrived > have || parts >= 0 && (listed > parts || arrived == len(u.held)):
			return nil
		case outstanding == 0:
			return u.needsWaves()
		}
		select {
		case <-u.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// progress is how many experts and projections arrived, and how many experts were
// asked for and have not, at one moment.
func (u *use) progress() (arrived, listed, outstanding int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.held {
		if u.held[i].state == stateAsked {
			outstanding++
		}
	}
	if u.early != nil {
		listed = len(u.early.list)
	}
	return len(u.arrived), listed, outstanding
}

func (u *use) lend(pos int32) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.held[pos].state == stateArrived {
		u.held[pos].state = stateLent
	}
	return u.held[pos].state == stateLent
}

// handBack releases one expert early and asks for the next of the wave.
func (u *use) handBack(pos int32) {
	u.mu.Lock()
	h := &u.held[pos]
	pinned := h.state == stateLent || h.state == stateArrived
	reading := h.state == stateAsked && len(h.holds) > 0
	holds := h.holds
	if pinned || reading {
		h.state, h.holds = stateReturned, nil
	}
	if reading { // it counts as arrived, for whoever waits for all
		u.arrived = append(u.arrived, pos)
	}
	u.mu.Unlock()
	switch {
	case reading:
		u.drop(pos, holds)
	case pinned:
		release(holds)
		h.lease.Release()
	default:
		return
	}
	u.asked--
	u.ask()
}

// release ends the use. Reads under way finish for others or for the cache;
// the new generation makes their arrival here a plain release.
func (u *use) release() {
	u.mu.Lock()
	u.gen.Add(1)
	u.mu.Unlock()
	for i := range u.held {
		h := &u.held[i]
		release(h.holds)
		switch h.state {
		case stateArrived, stateLent:
			h.lease.Release()
		case stateAsked:
			u.rt.reads.Cancel(layout.ExpertID{Layer: int32(u.layer), Index: h.index}, u.waiter())
		}
		*h = held{}
	}
	if u.rt.room.giveBack(&u.claim) {
		u.rt.budget.settle() // what it held over the budget is to go
	}
	clear(u.claim.callers)
	u.ctx = nil
	select {
	case <-u.wake:
	default:
	}
	u.rt.putUse(u)
}
