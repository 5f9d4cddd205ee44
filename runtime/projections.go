package runtime

import (
	"context"
	"iter"

	"outrider/experts"
	"outrider/layout"
	"outrider/prefetcher"
)

// Arrival is one projection of one expert of a use that is in memory.
type Arrival struct {
	Expert Expert
	Index  int // of the projection, in the order of Runtime.Record
}

// Tensor returns the projection, and false if the expert was released.
func (a Arrival) Tensor() (Tensor, bool) {
	if t, ok := a.Expert.early(a.Index); ok {
		return t, true
	}
	return a.Expert.At(a.Index)
}

// Projections yields each projection of each expert as it arrives, checked, so that
// the gate of an expert can be computed while its other projections are read. Those of
// experts in memory come first. An expert that cannot be read comes once with the
// error and Index -1, be it after some of its projections: what was computed from them
// is void. Otherwise it is as Ready, instead of which it is used.
//
// With Options.Projections off, projections come when all of their expert is there.
func (v Use) Projections(ctx context.Context) iter.Seq2[Arrival, error] {
	return func(yield func(Arrival, error) bool) {
		switch {
		case v.stale():
			yield(Arrival{Index: -1}, ErrReleased)
		case v.u.early == nil:
			v.projectionsOfReady(ctx, yield)
		default:
			v.u.iterateParts(ctx, yield)
		}
	}
}

func (v Use) projectionsOfReady(ctx context.Context, yield func(Arrival, error) bool) {
	n := len(v.u.rt.source.Record(v.u.layer))
	for expert, err := range v.Ready(ctx) {
		if err != nil {
			if !yield(Arrival{Expert: expert, Index: -1}, err) {
				return
			}
			continue
		}
		for i := range n {
			if !yield(Arrival{Expert: expert, Index: i}, nil) || v.stale() {
				return
			}
		}
	}
}

// early takes the projections that arrive before their expert: the waiter of a use
// whose runtime hands them out. Its fields are guarded by the use's mutex, except
// next, which is its owner's.
type early struct {
	u    *use
	list []partAt // in order of arrival
	next int      // of list: what was yielded
}

// partAt is a projection of the expert at a position of held; -1: it failed.
type partAt struct{ pos, part int32 }

var _ prefetcher.PartWaiter = (*early)(nil)

// Arrived implements prefetcher.Waiter.
func (e *early) Arrived(tag int, lease experts.Lease, err error) { e.u.Arrived(tag, lease, err) }

// PartArrived implements prefetcher.PartWaiter.
func (e *early) PartArrived(tag, i int, data []byte, hold prefetcher.Hold) {
	u := e.u
	u.mu.Lock()
	pos := int32(tag & 0xffffffff)
	if uint32(tag>>32) != u.generation() || u.held[pos].state != stateAsked {
		u.mu.Unlock()
		hold.Release()
		return
	}
	h := &u.held[pos]
	for len(h.parts) <= i {
		h.parts = append(h.parts, nil)
	}
	h.parts[i] = data
	h.holds = append(h.holds, hold)
	e.list = append(e.list, partAt{pos, int32(i)})
	u.mu.Unlock()
	u.notify()
}

// arrivedLocked lists what is there of an expert that has arrived, or failed.
func (e *early) arrivedLocked(pos int32) {
	if e == nil {
		return
	}
	h := &e.u.held[pos]
	if h.err != nil {
		e.list = append(e.list, partAt{pos, -1})
		return
	}
	for i := range e.u.rt.source.Record(e.u.layer) {
		if i >= len(h.parts) || h.parts[i] == nil {
			e.list = append(e.list, partAt{pos, int32(i)})
		}
	}
}

func (e *early) reset() {
	if e != nil {
		e.list, e.next = e.list[:0], 0
	}
}

// waiter is whom reads are to tell.
func (u *use) waiter() prefetcher.Waiter {
	if u.early != nil {
		return u.early
	}
	return u
}

// iterateParts is the body of Projections.
func (u *use) iterateParts(ctx context.Context, yield func(Arrival, error) bool) {
	gen := u.generation()
	for {
		at, err, ok, done := u.nextPart()
		switch {
		case done:
			return
		case !ok:
			if err := u.await(ctx, len(u.held), u.early.next); err != nil {
				yield(Arrival{Index: -1}, err)
				return
			}
			continue
		}
		u.lend(at.pos)
		if at.part < 0 {
			u.asked--
		}
		if !yield(Arrival{Expert: Expert{u: u, gen: gen, pos: at.pos}, Index: int(at.part)}, err) || u.generation() != gen {
			return
		}
	}
}

// nextPart takes the next arrival. Done means that no more come.
func (u *use) nextPart() (at partAt, err error, ok, done bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for u.early.next < len(u.early.list) {
		at = u.early.list[u.early.next]
		u.early.next++
		if u.held[at.pos].state != stateReturned {
			return at, u.held[at.pos].err, true, false
		}
	}
	return at, nil, false, len(u.arrived) == len(u.held)
}

// early is projection i of an expert that is still being read.
func (e Expert) early(i int) (Tensor, bool) {
	u := e.u
	if u == nil || u.generation() != e.gen {
		return Tensor{}, false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	h := &u.held[e.pos]
	if h.state == stateReturned || i < 0 || i >= len(h.parts) || h.parts[i] == nil {
		return Tensor{}, false
	}
	p := u.rt.source.Record(u.layer)[i]
	return Tensor{Name: p.Name, Type: p.Type, Dims: p.Dims, Data: h.parts[i]}, true
}

// drop hands back an expert that was still being read.
func (u *use) drop(pos int32, holds []prefetcher.Hold) {
	release(holds)
	id := layout.ExpertID{Layer: int32(u.layer), Index: u.held[pos].index}
	u.rt.reads.Cancel(id, u.waiter()) // if it is arriving just now, Arrived hands it back
}

func release(holds []prefetcher.Hold) {
	for _, h := range holds {
		h.Release()
	}
}
