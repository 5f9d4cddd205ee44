package sim

import (
	"cmp"
	"slices"

	"outrider/experts"
	"outrider/layout"
	"outrider/prefetcher"
)

// forecastReads replaces the speculative reads that were not started by those
// that the latest forecast is worth.
func (e *engine) forecastReads() {
	e.dropped = e.queue.ClearSpeculative(e.dropped[:0])
	if !e.run.speculate || !e.governor.Allow() {
		return
	}
	layer := e.predicted.layer
	rule := e.admission()
	ahead := 0
	for d := 1; d <= e.predicted.horizon; d++ {
		for _, c := range e.worthwhile((layer+d)%e.shape.Layers, e.step+int64(d), rule.Threshold) {
			if !rule.Admit(c, ahead) {
				continue
			}
			if e.queue.Push(prefetcher.Item{ID: c.ID, Class: prefetcher.SpeculativeClass(c.NeededBy, rule.Step), NeededBy: c.NeededBy, P: c.P}) {
				ahead++
			}
		}
	}
}

// worthwhile lists the absent experts of a layer that reach the threshold, the
// likeliest first. Valid until the next call.
func (e *engine) worthwhile(layer int, neededBy int64, threshold float64) []prefetcher.Candidate {
	list := e.candidates[:0]
	for x, p := range e.predicted.row(layer) {
		id := layout.ExpertID{Layer: int32(layer), Index: int32(x)}
		if float64(p) >= threshold && !e.table.Resident(id) && !e.table.InFlight(id) {
			list = append(list, prefetcher.Candidate{ID: id, P: p, NeededBy: neededBy})
		}
	}
	slices.SortFunc(list, func(a, b prefetcher.Candidate) int {
		return cmp.Or(cmp.Compare(b.P, a.P), cmp.Compare(a.ID.Index, b.ID.Index))
	})
	e.candidates = list
	return list
}

// admission is the rule of the moment.
func (e *engine) admission() prefetcher.Admission {
	return prefetcher.Admission{Step: e.step, Threshold: e.governor.Threshold(), ReadSteps: e.drive.each}
}

// readAhead lets the drive work on speculative reads until the given time.
func (e *engine) readAhead(until float64) {
	e.drive.free = max(e.drive.free, e.now)
	for {
		if e.drive.reading {
			if e.drive.free > until {
				return
			}
			e.endRead()
		}
		if e.drive.free >= until || !e.governor.Allow() {
			return
		}
		item, ok := e.queue.Pop()
		if !ok {
			return
		}
		e.beginRead(item)
	}
}

// beginRead starts a speculative read if there is room for it.
func (e *engine) beginRead(item prefetcher.Item) {
	c := prefetcher.Candidate{ID: item.ID, P: item.P, NeededBy: item.NeededBy}
	own := c.Expect(e.step, e.shape.Layers) * e.opts.Margin
	if _, err := e.table.Begin(item.ID, experts.Speculative, own); err != nil {
		return // not worth its room
	}
	e.ahead++
	e.governor.Issued(item.NeededBy)
	e.drive.reading, e.drive.id = true, item.ID
	e.drive.free += e.drive.each
}
