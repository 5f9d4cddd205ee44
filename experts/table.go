package experts

import (
	"fmt"
	"math"

	"outrider/layout"
)

// TableOptions describe a Table. Shape, BudgetBytes and Bytes are needed.
type TableOptions struct {
	Shape       layout.Shape
	BudgetBytes int64
	// Bytes is what one expert of a layer is charged.
	Bytes func(layer int) int64
	// Policy ranks victims; nil ranks by recency (least recently used first).
	Policy Policy
	// Protect is for how many steps a speculative read may not throw out an
	// expert that a demand used: 1 protects those used in the current step,
	// 0 protects none.
	Protect int
}

// Table keeps the books of a cache: which experts are resident, pinned or in
// flight, what they are charged, and who goes next. It holds no memory, no
// lock, no clock and does no I/O; it is not safe for concurrent use. Ids must
// be ones that the shape contains. Slices it returns are valid until the next
// call. In the steady state no call allocates.
type Table struct {
	shape   layout.Shape
	policy  Policy // nil: recency
	protect int64
	bytes   []int64 // by layer
	floor   int64
	budget  int64

	entries []entry   // by ordinal
	keys    []float64 // by ordinal; copied from the policy
	heads   []head    // by layer
	victims []layout.ExpertID

	step  int64
	order float64 // uses in this step, for recency

	count counters
}

// entry is the state of one expert.
type entry struct {
	used  int64 // step of the last demand use, or never; of an expert thrown out, the step of that
	pins  int32
	state state
	flags flags
}

type state uint8

const (
	absent state = iota
	filling
	resident
)

type flags uint8

const (
	unused flags = 1 << iota // brought, or being brought, by a forecast and not used yet
	thrown                   // evicted for a speculative read and not loaded since
	chosen                   // picked as a victim, while others are still sought
)

const never = math.MinInt64 / 2

// NewTable makes a table in which every expert is absent.
func NewTable(o TableOptions) (*Table, error) {
	if err := o.Shape.Validate(); err != nil {
		return nil, fmt.Errorf("experts: table: %w", err)
	}
	if o.BudgetBytes < 0 || o.Protect < 0 {
		return nil, fmt.Errorf("experts: table: budget %d and protect %d must not be negative", o.BudgetBytes, o.Protect)
	}
	if o.Bytes == nil {
		return nil, fmt.Errorf("experts: table: Bytes is missing")
	}
	t := &Table{
		shape: o.Shape, policy: o.Policy, protect: int64(o.Protect), budget: o.BudgetBytes,
		bytes:   make([]int64, o.Shape.Layers),
		entries: make([]entry, o.Shape.Count()),
		keys:    make([]float64, o.Shape.Count()),
		heads:   make([]head, o.Shape.Layers),
	}
	for l := range t.bytes {
		b := o.Bytes(l)
		if b < 1 || b > maxSlotBytes {
			return nil, fmt.Errorf("experts: table: layer %d has %d bytes an expert, want 1 to %d", l, b, int64(maxSlotBytes))
		}
		t.bytes[l] = b
		t.floor = max(t.floor, b*int64(o.Shape.TopK))
	}
	for i := range t.entries {
		t.entries[i].used = never
	}
	for l := range t.heads {
		t.Invalidate(l)
	}
	return t, nil
}

// maxSlotBytes keeps sums over all experts far from overflow.
const maxSlotBytes = 1 << 38

// Use records that a demand wants the expert at the current step, and says
// what it found. A speculative read counts as used from here on.
func (t *Table) Use(id layout.ExpertID) Outcome {
	ord := t.shape.Ordinal(id)
	e := &t.entries[ord]
	t.countDisplaced(e)
	wasUnused := e.flags&unused != 0
	t.markUsed(id, e)
	switch {
	case e.state == absent:
		return Miss
	case e.state == filling && wasUnused:
		return FillingLate
	case e.state == filling:
		return Filling
	case wasUnused:
		t.count.useful++
		return HitUseful
	}
	return Hit
}

// markUsed sets the use step and clears the speculative mark.
func (t *Table) markUsed(id layout.ExpertID, e *entry) {
	if e.flags&unused != 0 {
		e.flags &^= unused
		if e.state == filling {
			t.count.speculative -= t.bytes[id.Layer]
		}
	}
	e.used = t.step
	if h := &t.heads[id.Layer]; h.cold == id.Index && t.protect > 0 {
		h.dirty = true
	}
	t.touch(id)
}

// Pin keeps a resident expert from eviction until Unpin; it reports false, and
// does nothing, if the expert is not resident.
func (t *Table) Pin(id layout.ExpertID) bool {
	e := &t.entries[t.shape.Ordinal(id)]
	if e.state != resident {
		return false
	}
	if e.pins == 0 {
		t.leave(id)
		t.count.pinned += t.bytes[id.Layer]
	}
	e.pins++
	return true
}

// Unpin ends one Pin. It returns the experts that had to go because the budget
// was lowered while they were held. It panics if the expert is not pinned.
func (t *Table) Unpin(id layout.ExpertID) []layout.ExpertID {
	e := &t.entries[t.shape.Ordinal(id)]
	if e.pins == 0 {
		panic(fmt.Sprintf("experts: unpin of %v, which is not pinned", id))
	}
	e.pins--
	if e.pins > 0 {
		return nil
	}
	t.count.pinned -= t.bytes[id.Layer]
	t.join(id)
	return t.shrink()
}

// Begin makes room for an absent expert and marks it as in flight. It returns
// the experts evicted for it, none if it fails.
//
// A demand takes free room, then the unpinned residents that are expected
// last. A speculative read takes free room, then only residents that are
// expected later than own (the newcomer's own Expect plus the margin that the
// caller asks for) and are not protected; all speculative reads in flight
// together leave room for one layer of one token beside what is astray.
//
// Errors: ErrResident, ErrFilling, ErrNoRoom, ErrNotWorth.
func (t *Table) Begin(id layout.ExpertID, class Class, own float64) ([]layout.ExpertID, error) {
	e := &t.entries[t.shape.Ordinal(id)]
	switch e.state {
	case resident:
		return nil, ErrResident
	case filling:
		return nil, ErrFilling
	}
	need := t.bytes[id.Layer]
	if err := t.makeRoom(need, class, own); err != nil {
		return nil, err
	}
	e.state = filling
	t.count.live += need
	t.count.filling += need
	t.count.peak = max(t.count.peak, t.used())
	if class == Speculative {
		if e.flags&thrown != 0 {
			e.used = never // it was no demand's
		}
		e.flags = unused
		t.count.speculative += need
		t.touch(id)
		return t.victims, nil
	}
	t.countDisplaced(e)
	e.flags = 0
	t.markUsed(id, e)
	return t.victims, nil
}

// countDisplaced counts an expert that a demand wants soon after it was thrown
// out for a speculative read: within one cycle of the layers. Later, it would
// most likely have gone anyway.
func (t *Table) countDisplaced(e *entry) {
	if e.flags&thrown == 0 {
		return
	}
	e.flags &^= thrown
	if t.step-e.used <= int64(t.shape.Layers) {
		t.count.displaced++
	}
}

// Commit turns an expert in flight into a resident one with the given number
// of pins. It returns the experts that had to go because the budget was
// lowered meanwhile. It panics if the expert is not in flight.
func (t *Table) Commit(id layout.ExpertID, pins int) []layout.ExpertID {
	e := t.endFilling(id, "commit")
	e.state = resident
	t.count.residents++
	if pins > 0 {
		t.markUsed(id, e)
		e.pins = int32(pins)
		t.count.pinned += t.bytes[id.Layer]
		return nil
	}
	t.join(id)
	return t.shrink()
}

// Abort makes an expert in flight absent again. It panics if the expert is not
// in flight.
func (t *Table) Abort(id layout.ExpertID) {
	e := t.endFilling(id, "abort")
	e.state = absent
	e.flags &^= unused
	t.count.live -= t.bytes[id.Layer]
}

// endFilling takes an expert out of the counters of experts in flight.
func (t *Table) endFilling(id layout.ExpertID, act string) *entry {
	e := &t.entries[t.shape.Ordinal(id)]
	if e.state != filling {
		panic(fmt.Sprintf("experts: %s of %v, which is not in flight", act, id))
	}
	t.count.filling -= t.bytes[id.Layer]
	if e.flags&unused != 0 {
		t.count.speculative -= t.bytes[id.Layer]
	}
	return e
}

// Evict makes a resident expert absent. It reports false, and does nothing, if
// the expert is pinned or not resident.
func (t *Table) Evict(id layout.ExpertID) bool {
	e := &t.entries[t.shape.Ordinal(id)]
	if e.state != resident || e.pins > 0 {
		return false
	}
	t.drop(id, 0)
	return true
}

// Lapse evicts an expert that was brought by a speculative read and never used since;
// any other it leaves, and reports false.
func (t *Table) Lapse(id layout.ExpertID) bool {
	return t.entries[t.shape.Ordinal(id)].flags&unused != 0 && t.Evict(id)
}

// Invalidate fetches the layer's keys from the policy again.
func (t *Table) Invalidate(layer int) {
	t.heads[layer].dirty = true
	if t.policy == nil {
		return
	}
	own := t.layerKeys(layer)
	n := copy(own, t.policy.Keys(layer))
	for i := n; i < len(own); i++ {
		own[i] = math.Inf(1)
	}
	for i, k := range own {
		if math.IsNaN(k) {
			own[i] = math.Inf(1)
		}
	}
}

// Step advances the clock by one layer execution.
func (t *Table) Step() {
	t.step++
	t.order = 0
}

// SetBudget changes the budget. If it falls, what can be evicted goes now and
// is returned; the rest goes as pins and fills end.
func (t *Table) SetBudget(bytes int64) []layout.ExpertID {
	t.budget = max(bytes, 0)
	return t.shrink()
}

// Hold charges bytes (negative: no longer) that belong to no expert: memory of
// evicted experts that is not back with the system yet.
func (t *Table) Hold(bytes int64) {
	t.count.held += bytes
	t.count.peak = max(t.count.peak, t.used())
}

// Resident reports whether the expert is in memory, pinned or not.
func (t *Table) Resident(id layout.ExpertID) bool {
	return t.entries[t.shape.Ordinal(id)].state == resident
}

// InFlight reports whether a fill of the expert is in flight.
func (t *Table) InFlight(id layout.ExpertID) bool {
	return t.entries[t.shape.Ordinal(id)].state == filling
}

// Pins is the number of pins on the expert.
func (t *Table) Pins(id layout.ExpertID) int {
	return int(t.entries[t.shape.Ordinal(id)].pins)
}
