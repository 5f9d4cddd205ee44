package prefetcher

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"outrider/layout"
)

var queueShape = layout.Shape{Layers: 4, Experts: 8, TopK: 2}

func eid(layer, index int) layout.ExpertID {
	return layout.ExpertID{Layer: int32(layer), Index: int32(index)}
}

// queueModel is the queue as a plain slice, in order of arrival.
type queueModel struct {
	items    []Item
	passed   [classes]int
	patience int
}

func (m *queueModel) find(id layout.ExpertID) int {
	return slices.IndexFunc(m.items, func(it Item) bool { return it.ID == id })
}

func (m *queueModel) count(c Class) (n int) {
	for _, it := range m.items {
		if it.Class == c {
			n++
		}
	}
	return n
}

func (m *queueModel) first(c Class) int {
	best := -1
	for i := range m.items {
		if m.items[i].Class == c && (best < 0 || m.items[i].before(&m.items[best])) {
			best = i
		}
	}
	return best
}

func (m *queueModel) pop() (Item, bool) {
	var order []Class
	for _, c := range []Class{Far, Near} {
		if m.passed[c] >= m.patience {
			order = append(order, c)
		}
	}
	for _, c := range append(order, Demand, Near, Far) {
		i := m.first(c)
		if i < 0 {
			continue
		}
		m.passed[c] = 0
		for d := c + 1; d <= Far; d++ {
			m.passed[d]++
			if m.count(d) == 0 {
				m.passed[d] = 0
			}
		}
		it := m.items[i]
		m.items = slices.Delete(m.items, i, i+1)
		return it, true
	}
	return Item{}, false
}

// queueCheck runs the same operations on a Queue and its model.
type queueCheck struct {
	q    *Queue
	m    *queueModel
	seq  uint64
	step int64
}

var drawID = rapid.Custom(func(t *rapid.T) layout.ExpertID {
	return eid(rapid.IntRange(0, 3).Draw(t, "layer"), rapid.IntRange(0, 7).Draw(t, "expert"))
})

func (c *queueCheck) Push(t *rapid.T) {
	it := Item{ID: drawID.Draw(t, "id"), Class: Class(rapid.IntRange(0, 2).Draw(t, "class")),
		NeededBy: c.step + int64(rapid.IntRange(0, 5).Draw(t, "by")), P: float32(rapid.IntRange(0, 3).Draw(t, "p")) / 4}
	want := c.m.find(it.ID) < 0
	if got := c.q.Push(it); got != want {
		t.Fatalf("Push(%v): got %v, want %v", it, got, want)
	}
	if want {
		c.seq++
		it.seq = c.seq
		c.m.items = append(c.m.items, it)
	}
}

func (c *queueCheck) Promote(t *rapid.T) {
	id := drawID.Draw(t, "id")
	i := c.m.find(id)
	if got := c.q.Promote(id, c.step); got != (i >= 0) {
		t.Fatalf("Promote(%v): got %v, want %v", id, got, i >= 0)
	}
	if i >= 0 {
		it := &c.m.items[i]
		it.Class, it.NeededBy, it.P = Demand, c.step, 1
	}
}

func (c *queueCheck) Remove(t *rapid.T) {
	id := drawID.Draw(t, "id")
	i := c.m.find(id)
	if got := c.q.Remove(id); got != (i >= 0) {
		t.Fatalf("Remove(%v): got %v, want %v", id, got, i >= 0)
	}
	if i >= 0 {
		c.m.items = slices.Delete(c.m.items, i, i+1)
	}
}

func (c *queueCheck) Pop(t *rapid.T) {
	want, wantOK := c.m.pop()
	got, ok := c.q.Pop()
	if got != want || ok != wantOK {
		t.Fatalf("Pop: got %v %v, want %v %v", got, ok, want, wantOK)
	}
}

func (c *queueCheck) PopDemand(t *rapid.T) {
	i := c.m.first(Demand)
	got, ok := c.q.PopDemand()
	if ok != (i >= 0) || (ok && got != c.m.items[i]) {
		t.Fatalf("PopDemand: got %v %v, want index %d of %v", got, ok, i, c.m.items)
	}
	if ok {
		c.m.items = slices.Delete(c.m.items, i, i+1)
	}
}

func (c *queueCheck) Advance(t *rapid.T) {
	c.step += int64(rapid.IntRange(0, 2).Draw(t, "steps"))
	earliest := c.step + int64(rapid.IntRange(0, 2).Draw(t, "earliest"))
	late := func(it Item) bool { return it.Class != Demand && it.NeededBy < earliest }
	got := c.q.Advance(c.step, earliest, nil)
	for _, it := range got {
		if i := c.m.find(it.ID); i < 0 || !late(c.m.items[i]) {
			t.Fatalf("Advance dropped %v, which is not late at %d", it, earliest)
		}
	}
	before := len(c.m.items)
	c.m.items = slices.DeleteFunc(c.m.items, late)
	if before-len(c.m.items) != len(got) {
		t.Fatalf("Advance: got %d dropped, want %d", len(got), before-len(c.m.items))
	}
	for i := range c.m.items {
		if it := &c.m.items[i]; it.Class == Far {
			it.Class = SpeculativeClass(it.NeededBy, c.step)
		}
	}
}

func (c *queueCheck) Clear(t *rapid.T) {
	want := c.m.count(Near) + c.m.count(Far)
	if got := c.q.ClearSpeculative(nil); len(got) != want {
		t.Fatalf("ClearSpeculative: got %d, want %d", len(got), want)
	}
	c.m.items = slices.DeleteFunc(c.m.items, func(it Item) bool { return it.Class != Demand })
}

// Check compares what both hold; rapid calls it after each operation.
func (c *queueCheck) Check(t *rapid.T) {
	for class := Demand; class <= Far; class++ {
		if got, want := c.q.Len(class), c.m.count(class); got != want {
			t.Fatalf("Len(%v): got %d, want %d", class, got, want)
		}
	}
	for o := range queueShape.Count() {
		id := queueShape.ID(o)
		class, ok := c.q.Contains(id)
		i := c.m.find(id)
		if ok != (i >= 0) || (ok && class != c.m.items[i].Class) {
			t.Fatalf("Contains(%v): got %v %v, want index %d", id, class, ok, i)
		}
	}
}

func TestQueueAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		patience := rapid.IntRange(1, 5).Draw(t, "patience")
		c := &queueCheck{q: NewQueue(queueShape, patience), m: &queueModel{patience: patience}}
		t.Repeat(rapid.StateMachineActions(c))
	})
}

func TestQueueLowerClassWaitsAtMostPatience(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 64, TopK: 1}
	q := NewQueue(shape, 4)
	q.Push(Item{ID: eid(0, 62), Class: Near, NeededBy: 9})
	q.Push(Item{ID: eid(0, 63), Class: Far, NeededBy: 9})
	var got []int32
	for i := range 8 {
		q.Push(Item{ID: eid(0, i), Class: Demand, NeededBy: int64(i)})
	}
	for {
		it, ok := q.Pop()
		if !ok {
			break
		}
		got = append(got, it.ID.Index)
	}
	want := []int32{0, 1, 2, 3, 63, 62, 4, 5, 6, 7}
	if !slices.Equal(got, want) {
		t.Errorf("order of leaving: got %v, want %v", got, want)
	}
}

func TestQueueRefusesStrangers(t *testing.T) {
	q := NewQueue(queueShape, 0)
	for _, it := range []Item{{ID: eid(4, 0)}, {ID: eid(0, 8)}, {ID: eid(-1, 0)}, {ID: eid(0, 0), Class: Far + 1}} {
		if q.Push(it) {
			t.Errorf("Push(%v): got true, want false", it)
		}
	}
	if q.Promote(eid(9, 9), 1) || q.Remove(eid(9, 9)) {
		t.Error("Promote and Remove of a stranger: got true, want false")
	}
}

func TestQueueSteadyStateDoesNotAllocate(t *testing.T) {
	q := NewQueue(queueShape, 0)
	var dropped []Item
	round := func() {
		for o := range queueShape.Count() {
			q.Push(Item{ID: queueShape.ID(o), Class: Class(o % classes), NeededBy: int64(o % 5)})
		}
		dropped = q.Advance(1, 2, dropped[:0])
		q.Promote(queueShape.ID(1), 1)
		for {
			if _, ok := q.Pop(); !ok {
				break
			}
		}
	}
	round()
	if got := testing.AllocsPerRun(20, round); got != 0 {
		t.Errorf("allocations a round: got %v, want 0", got)
	}
}

func BenchmarkQueue(b *testing.B) {
	shape := layout.Shape{Layers: 32, Experts: 128, TopK: 8}
	q := NewQueue(shape, 0)
	for o := range 512 {
		q.Push(Item{ID: shape.ID(o), Class: Class(o % classes), NeededBy: int64(o % 97), P: float32(o%13) / 13})
	}
	b.ReportAllocs()
	step := int64(97)
	for b.Loop() {
		it, _ := q.Pop()
		step++
		it.NeededBy = step
		q.Push(it)
	}
}
