package prefetcher

import "outrider/layout"

// Class says how urgent a read is. A smaller class goes first.
type Class uint8

const (
	Demand Class = iota // the router has chosen the expert: its layer waits
	Near                // forecast for the next layer execution
	Far                 // forecast for a later one
)

const classes = int(Far) + 1

// String is the word used in logs: "demand", "near", "far".
func (c Class) String() string {
	switch c {
	case Demand:
		return "demand"
	case Near:
		return "near"
	}
	return "far"
}

// SpeculativeClass is the class of a forecast read: Near if the expert is
// needed at step+1 or before, else Far.
func SpeculativeClass(neededBy, step int64) Class {
	if neededBy <= step+1 {
		return Near
	}
	return Far
}

// Item is one queued read.
type Item struct {
	ID       layout.ExpertID
	Class    Class
	NeededBy int64   // the step that needs it; steps count layer executions since the start
	P        float32 // probability that the step needs it; 1 for a demand

	seq uint64 // order of arrival, so that equal requests leave first come, first served
}

// before is the order inside a class.
func (a *Item) before(b *Item) bool {
	if a.NeededBy != b.NeededBy {
		return a.NeededBy < b.NeededBy
	}
	if a.P != b.P {
		return a.P > b.P
	}
	return a.seq < b.seq
}

// DefaultPatience is how many reads of more urgent classes may pass a waiting class.
const DefaultPatience = 64

// Queue orders reads that have not started. At most one for each expert.
//
// Classes are strict: a demand goes before any near read, a near one before any
// far one. Inside a class the read needed first goes first, then the likelier,
// then the older. So that a lower class does not wait for ever, it takes one turn
// once Patience reads of more urgent classes have left while it had something
// queued; of two classes that are due, the lower takes its turn first. A demand
// is thus passed by at most two reads in every Patience.
//
// All operations are O(log n) or better and do not allocate once the queue has
// had its largest size. Not safe for concurrent use.
type Queue struct {
	shape    layout.Shape
	patience int
	seq      uint64
	heaps    [classes][]Item
	passed   [classes]int
	// where holds, for each expert, 0 when it is not queued, else
	// 1 + index in its heap * classes + class.
	where []int32
}

// NewQueue makes an empty queue for the experts of a shape. A patience of 0
// means DefaultPatience. The shape must be valid.
func NewQueue(shape layout.Shape, patience int) *Queue {
	if patience <= 0 {
		patience = DefaultPatience
	}
	q := &Queue{shape: shape, patience: patience, where: make([]int32, shape.Count())}
	for c := range q.heaps {
		q.heaps[c] = make([]Item, 0, min(shape.Count(), 1024))
	}
	return q
}

// Len is the number of queued reads of a class.
func (q *Queue) Len(c Class) int { return len(q.heaps[c]) }

// Contains reports whether a read of the expert is queued, and its class.
func (q *Queue) Contains(id layout.ExpertID) (Class, bool) {
	_, c, ok := q.find(id)
	return c, ok
}

// Push queues a read. It reports false, and changes nothing, when the expert is
// queued already (see Promote) or is not one of the shape's.
func (q *Queue) Push(it Item) bool {
	if !q.shape.Contains(it.ID) || it.Class > Far || q.where[q.shape.Ordinal(it.ID)] != 0 {
		return false
	}
	if it.P != it.P {
		it.P = 0 // a NaN has no place in an order
	}
	q.seq++
	it.seq = q.seq
	q.insert(it)
	return true
}

// Promote makes a queued read a demand needed by the given step. It reports
// false when the expert is not queued.
func (q *Queue) Promote(id layout.ExpertID, neededBy int64) bool {
	i, c, ok := q.find(id)
	if !ok {
		return false
	}
	it := q.removeAt(c, i)
	it.Class, it.NeededBy, it.P = Demand, neededBy, 1
	q.insert(it)
	return true
}

// Remove takes a read out of the queue and reports whether it was there.
func (q *Queue) Remove(id layout.ExpertID) bool {
	i, c, ok := q.find(id)
	if ok {
		q.removeAt(c, i)
	}
	return ok
}

// Advance tells the queue that the given step began. Speculative reads needed
// before the step earliest are taken out and appended to dropped: they can't be in
// time any more. Far reads that have become near change their class.
func (q *Queue) Advance(step, earliest int64, dropped []Item) []Item {
	for c := Near; c <= Far; c++ {
		for len(q.heaps[c]) > 0 && q.heaps[c][0].NeededBy < earliest {
			dropped = append(dropped, q.removeAt(c, 0))
		}
	}
	for len(q.heaps[Far]) > 0 && SpeculativeClass(q.heaps[Far][0].NeededBy, step) == Near {
		it := q.removeAt(Far, 0)
		it.Class = Near
		q.insert(it)
	}
	return dropped
}

// ClearSpeculative takes out all near and far reads and appends them to cleared.
// Turns that a class has earned by waiting are kept.
func (q *Queue) ClearSpeculative(cleared []Item) []Item {
	for c := Near; c <= Far; c++ {
		for _, it := range q.heaps[c] {
			q.where[q.shape.Ordinal(it.ID)] = 0
		}
		cleared = append(cleared, q.heaps[c]...)
		q.heaps[c] = q.heaps[c][:0]
	}
	return cleared
}

// Pop takes out the read that goes next; see Queue for the rule.
func (q *Queue) Pop() (Item, bool) {
	c, ok := q.turn()
	if !ok {
		return Item{}, false
	}
	q.passed[c] = 0
	for d := int(c) + 1; d < classes; d++ {
		if len(q.heaps[d]) > 0 {
			q.passed[d]++
		} else {
			q.passed[d] = 0
		}
	}
	return q.removeAt(c, 0), true
}

// PopDemand takes out the next demand, whatever the other classes have earned.
// It is for a drive that has no room for speculation.
func (q *Queue) PopDemand() (Item, bool) {
	if len(q.heaps[Demand]) == 0 {
		return Item{}, false
	}
	return q.removeAt(Demand, 0), true
}

// turn is the class that Pop takes from.
func (q *Queue) turn() (Class, bool) {
	for c := Far; c > Demand; c-- {
		if len(q.heaps[c]) > 0 && q.passed[c] >= q.patience {
			return c, true
		}
	}
	for c := Demand; c <= Far; c++ {
		if len(q.heaps[c]) > 0 {
			return c, true
		}
	}
	return 0, false
}

func (q *Queue) find(id layout.ExpertID) (int, Class, bool) {
	if !q.shape.Contains(id) {
		return 0, 0, false
	}
	w := int(q.where[q.shape.Ordinal(id)])
	if w == 0 {
		return 0, 0, false
	}
	return (w - 1) / classes, Class((w - 1) % classes), true
}

func (q *Queue) insert(it Item) {
	h := &q.heaps[it.Class]
	*h = append(*h, it)
	q.up(it.Class, len(*h)-1)
}

func (q *Queue) removeAt(c Class, i int) Item {
	h := q.heaps[c]
	it, last := h[i], len(h)-1
	q.where[q.shape.Ordinal(it.ID)] = 0
	q.heaps[c] = h[:last]
	if i != last {
		h[i] = h[last]
		q.up(c, q.down(c, i))
	}
	return it
}

func (q *Queue) place(c Class, i int) {
	q.where[q.shape.Ordinal(q.heaps[c][i].ID)] = int32(1 + i*classes + int(c))
}

func (q *Queue) up(c Class, i int) {
	h := q.heaps[c]
	for i > 0 {
		parent := (i - 1) / 2
		if !h[i].before(&h[parent]) {
			break
		}
		h[i], h[parent] = h[parent], h[i]
		q.place(c, i)
		i = parent
	}
	q.place(c, i)
}

// down sifts towards the leaves and returns where the item came to rest.
func (q *Queue) down(c Class, i int) int {
	h := q.heaps[c]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(&h[child]) {
			child++
		}
		if !h[child].before(&h[i]) {
			break
		}
		h[i], h[child] = h[child], h[i]
		q.place(c, i)
		i = child
	}
	return i
}
