package sim

import (
	"outrider/experts"
	"outrider/layout"
)

// demandOneByOne serves a layer's experts for the optimum. As a bound it takes
// them one by one, and one that had its turn may go for the next: no order of
// loading them can have more hits.
func (e *engine) demandOneByOne(layer int) error {
	found, ready := 0, e.now
	e.best.Begin()
	for _, x := range e.union.Experts {
		id := layout.ExpertID{Layer: int32(layer), Index: x}
		if e.table.Use(id).Resident() {
			found++
		} else {
			if _, err := e.table.Begin(id, experts.Demand, 0); err != nil {
				return err
			}
			e.table.Commit(id, 0)
			e.reads++
			e.readAlone(id)
		}
		e.best.Turn(layer, x)
		e.table.Invalidate(layer)
	}
	for i := range e.drives.list {
		ready = max(ready, e.drives.list[i].until)
	}
	e.stall += ready - e.now
	e.now = ready + 1 - e.opts.Attention
	e.count(found)
	return nil
}

// readAlone lets the drives read an expert, one after the other since now.
func (e *engine) readAlone(id layout.ExpertID) {
	for i, took := range e.placement.pieces(e.shape.Ordinal(id)) {
		dr := &e.drives.list[i]
		dr.until = max(dr.until, e.now) + took
	}
}
