package sim

import (
	"slices"

	"outrider/experts"
	"outrider/layout"
	"outrider/prefetcher"
)

// flight is the one read of an expert: a piece on each drive that holds some of
// it.
type flight struct {
	id     layout.ExpertID
	demand bool // somebody waits for it
	begun  bool // it has its place in the cache
	left   int  // pieces not read yet
	pieces []float64
	opened float64 // when it was begun
}

// drive reads one piece at a time, demands first; a piece that was started is
// read to its end.
type drive struct {
	current *flight // being read
	until   float64 // when that ends
	demand  []*flight
	ahead   []*flight // begun speculative reads whose piece waits
	busy    float64   // time spent on demands since the last step
}

// drives are all devices and the reads under way, in virtual time.
type drives struct {
	clock   float64
	list    []drive
	flights map[layout.ExpertID]*flight
	spare   []*flight
	waiting int // demanded flights not read yet
	queued  int // of those, not begun
	err     error
}

func newDrives(n int) drives {
	return drives{list: make([]drive, n), flights: map[layout.ExpertID]*flight{}}
}

// request makes a flight; its pieces are put up by demandFlight or openAhead.
func (e *engine) request(id layout.ExpertID) *flight {
	d := &e.drives
	var f *flight
	if n := len(d.spare); n > 0 {
		f, d.spare = d.spare[n-1], d.spare[:n-1]
	} else {
		f = &flight{}
	}
	*f = flight{id: id, pieces: e.placement.pieces(e.shape.Ordinal(id))}
	for _, took := range f.pieces {
		if took > 0 {
			f.left++
		}
	}
	d.flights[id] = f
	return f
}

// demandFlight asks for an expert that is not in memory, or joins its read.
func (e *engine) demandFlight(id layout.ExpertID) {
	d := &e.drives
	d.waiting++
	f := d.flights[id]
	fresh := f == nil
	if fresh {
		f = e.request(id)
		d.queued++
		e.reads++
	}
	f.demand = true
	for i := range d.list {
		if took := f.pieces[i]; took <= 0 {
			continue
		}
		dr := &d.list[i]
		if fresh {
			dr.demand = append(dr.demand, f)
		} else if dr.current == f {
			dr.busy += dr.until - d.clock
		} else if at := slices.Index(dr.ahead, f); at >= 0 {
			dr.ahead = slices.Delete(dr.ahead, at, at+1)
			dr.demand = append(dr.demand, f)
		}
	}
}

// run lets the drives work until the given time, or until nothing is waited for
// if that comes first and stop is set.
func (e *engine) run(until float64, stop bool) {
	d := &e.drives
	for d.err == nil {
		if stop && d.waiting == 0 {
			return
		}
		if d.clock < until {
			e.start()
		}
		next := -1
		for i := range d.list {
			if d.list[i].current != nil && (next < 0 || d.list[i].until < d.list[next].until) {
				next = i
			}
		}
		if next < 0 || d.list[next].until > until {
			d.clock = max(d.clock, until)
			return
		}
		d.clock = d.list[next].until
		e.finish(&d.list[next])
	}
}

// start gives each idle drive something to do.
func (e *engine) start() {
	for opened := true; opened; {
		opened = false
		for i := range e.drives.list {
			dr := &e.drives.list[i]
			if dr.current != nil {
				continue
			}
			switch {
			case len(dr.demand) > 0:
				f := dr.demand[0]
				dr.demand = slices.Delete(dr.demand, 0, 1)
				e.begin(dr, f, f.pieces[i])
			case len(dr.ahead) > 0:
				f := dr.ahead[0]
				dr.ahead = slices.Delete(dr.ahead, 0, 1)
				e.begin(dr, f, f.pieces[i])
			default:
				opened = e.openAhead() || opened
			}
		}
	}
}

// begin starts to read a piece.
func (e *engine) begin(dr *drive, f *flight, took float64) {
	if f.demand && !f.begun {
		if _, err := e.table.Begin(f.id, experts.Demand, 0); err != nil {
			e.drives.err = err
			return
		}
		f.begun, f.opened = true, e.drives.clock
		e.pace.began(e.drives.clock)
		e.drives.queued--
	}
	if f.demand {
		dr.busy += took
	}
	dr.current, dr.until = f, e.drives.clock+took
}

// openAhead begins the next speculative read that is worth its room, and reports
// whether it did.
func (e *engine) openAhead() bool {
	if e.aheadWaiting() {
		return false
	}
	for e.governor.Allow() {
		item, ok := e.queue.Pop()
		if !ok {
			return false
		}
		c := prefetcher.Candidate{ID: item.ID, P: item.P, NeededBy: item.NeededBy}
		own := c.Expect(e.step, e.shape.Layers) * e.opts.Margin
		if _, err := e.table.Begin(item.ID, experts.Speculative, own); err != nil {
			continue // not worth its room
		}
		f := e.request(item.ID)
		f.begun, f.opened = true, e.drives.clock
		e.pace.began(e.drives.clock)
		for i := range e.drives.list {
			if f.pieces[i] > 0 {
				e.drives.list[i].ahead = append(e.drives.list[i].ahead, f)
			}
		}
		e.ahead++
		e.lapses.Begun(item.ID, item.NeededBy)
		e.governor.Issued(item.NeededBy)
		return true
	}
	return false
}

// aheadWaiting reports whether a begun speculative read still has pieces that no
// drive took.
func (e *engine) aheadWaiting() bool {
	for i := range e.drives.list {
		if len(e.drives.list[i].ahead) > 0 {
			return true
		}
	}
	return false
}

// finish ends the piece that a drive reads.
func (e *engine) finish(dr *drive) {
	d := &e.drives
	f := dr.current
	dr.current = nil
	if f.left--; f.left > 0 {
		return
	}
	pins := 0
	if f.demand {
		pins = 1
		d.waiting--
	}
	e.table.Commit(f.id, pins)
	e.pace.ended(d.clock, d.clock-f.opened)
	delete(d.flights, f.id)
	d.spare = append(d.spare, f)
}
