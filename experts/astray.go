package experts

import (
	"fmt"

	"outrider/layout"
)

// Spare makes room for a second piece of memory of an expert in flight, as a
// demand does, and charges it as astray until Found. It returns the experts
// evicted for it, none if it fails. It panics if the expert is not in flight.
//
// Error: ErrNoRoom.
func (t *Table) Spare(id layout.ExpertID) ([]layout.ExpertID, error) {
	if !t.InFlight(id) {
		panic(fmt.Sprintf("experts: spare of %v, which is not in flight", id))
	}
	if err := t.makeRoom(t.bytes[id.Layer], Demand, 0); err != nil {
		return nil, err
	}
	t.astray(id)
	return t.victims, nil
}

// Abandon makes an expert in flight absent again, as Abort does, but what it is
// charged stays charged, as astray, until Found. It panics if the expert is not
// in flight.
func (t *Table) Abandon(id layout.ExpertID) {
	t.Abort(id)
	t.astray(id)
}

func (t *Table) astray(id layout.ExpertID) {
	t.count.stray += t.bytes[id.Layer]
	t.count.strays++
	t.count.peak = max(t.count.peak, t.used())
}

// Found ends the charge of one Spare or Abandon of an expert of the layer. It
// panics if nothing is astray.
func (t *Table) Found(layer int) {
	if t.count.strays == 0 {
		panic("experts: memory found that was not astray")
	}
	t.count.stray -= t.bytes[layer]
	t.count.strays--
}
