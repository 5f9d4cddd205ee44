package experts

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"outrider/layout"
)

func TestLoweredBudgetStays(t *testing.T) {
	c := newTestCache(t, options(4))
	held := fill(t, c, id(0, 0), 1)
	held = append(held, fill(t, c, id(0, 1), 1)...)
	fill(t, c, id(0, 2), 0)
	f, _ := c.Begin(id(0, 3), Demand, 0)
	if err := c.SetBudget(pageBytes); err != nil {
		t.Fatalf("SetBudget: got error %v", err)
	}
	used := func(want int64) {
		t.Helper()
		if got := c.Stats().Used; got != want*pageBytes {
			t.Errorf("used: got %d pages, want %d", got/pageBytes, want)
		}
	}
	used(3)
	giveBack(t, held[0])
	used(2)
	if err := f.Commit(nil, nil); err != nil {
		t.Errorf("Commit: got error %v", err)
	}
	used(1)
	if !whole(held[1]) {
		t.Errorf("lease over a lowered budget: got other bytes")
	}
	giveBack(t, held[1])
	used(1)
	for i := range 4 {
		if c.Resident(id(0, i)) {
			continue
		}
		giveBack(t, fill(t, c, id(0, i), 1)...)
		used(1)
	}
}

// TestShrinkingStaysShrunk: memory that a lowered budget freed is not taken
// again by the misses that follow.
func TestShrinkingStaysShrunk(t *testing.T) {
	o := options(8)
	mem := &countingMemory{Memory: o.Memory}
	o.Memory, o.Poison = mem, false
	c := newTestCache(t, o)
	for i := range o.Shape.Count() {
		fill(t, c, o.Shape.ID(i), 0)
	}
	if err := c.SetBudget(3 * pageBytes); err != nil {
		t.Fatalf("SetBudget: got error %v", err)
	}
	misses := 0
	for i := range 10_000 {
		e := o.Shape.ID(i * 3 % o.Shape.Count())
		if _, out := c.Pin(e); out == Miss {
			misses++
		}
		fill(t, c, e, 0)
		if s := c.Stats(); s.Used > 3*pageBytes || s.Residents > 3 || mem.lent > 3 || mem.bytes > 3*pageBytes {
			t.Fatalf("after %d misses: got %d bytes used, %d residents, %d slots of %d bytes lent; want at most 3 of each", misses, s.Used, s.Residents, mem.lent, mem.bytes)
		}
	}
	if misses != 10_000 {
		t.Errorf("got %d misses, want each turn to be one", misses)
	}
}

// TestCyclicTrace: a budget slightly below the token cycle is reported, and
// while recency finds nothing again there, a policy that knows when a layer
// comes round stays near the optimum.
func TestCyclicTrace(t *testing.T) {
	shape := layout.Shape{Layers: 10, Experts: 4, TopK: 4}
	const tokens, room = 50, 36 // of a cycle of 40
	hits := func(p *fixedPolicy) (n int) {
		o := TableOptions{Shape: shape, BudgetBytes: room, Bytes: one}
		if p != nil {
			o.Policy = p
		}
		table := newTestTable(t, o)
		for i := range tokens * shape.Count() {
			e := shape.ID(i % shape.Count())
			if p != nil {
				for l := range p.distance {
					p.distance[l] = float64((l - int(e.Layer) + shape.Layers - 1) % shape.Layers)
				}
			}
			if table.Use(e).Resident() {
				n++
				continue
			}
			load(t, table, Demand, 0, e)
		}
		return n
	}
	// The optimum keeps all but one of what fits, and reads the rest each time.
	optimum := (tokens - 1) * (room - 1) * shape.Count() / (shape.Count() - 1)
	if got := hits(nil); got != 0 {
		t.Errorf("recency: got %d hits, want the cliff", got)
	}
	if got := hits(newFixedPolicy(shape)); got < optimum*90/100 || got > optimum {
		t.Errorf("policy: got %d hits, want within 10 %% of the optimum, %d", got, optimum)
	}
	o := Options{Shape: shape, BudgetBytes: room * pageBytes, Memory: NewHeapMemory()}
	for range shape.Layers {
		o.Bytes = append(o.Bytes, pageBytes)
	}
	if c := newTestCache(t, o); !c.BelowCycle() || c.Cycle() != 40*pageBytes {
		t.Errorf("got below cycle %v, cycle %d; want true, %d", c.BelowCycle(), c.Cycle(), 40*pageBytes)
	}
}

func TestCloseWaitsForNobody(t *testing.T) {
	o := options(4)
	mem := &countingMemory{Memory: o.Memory}
	o.Memory = mem
	c := newTestCache(t, o)
	l := fill(t, c, id(0, 0), 1)[0]
	fill(t, c, id(0, 1), 0)
	f, _ := c.Begin(id(0, 2), Demand, 0)
	g, _ := c.Begin(id(0, 3), Demand, 0)
	if err := c.Close(); err != nil {
		t.Fatalf("Close: got error %v", err)
	}
	if _, out := c.Pin(id(0, 0)); out != Refused {
		t.Errorf("Pin after Close: got %v, want %v", out, Refused)
	}
	_, err := c.Begin(id(1, 0), Demand, 0)
	wantError(t, "Begin after Close", err, ErrClosed)
	wantError(t, "SetBudget after Close", c.SetBudget(8*pageBytes), ErrClosed)
	if !whole(l) {
		t.Errorf("lease after Close: got other bytes")
	}
	wantError(t, "Commit after Close", f.Commit(nil, make([]Lease, 1)), ErrClosed)
	wantError(t, "second Commit after Close", f.Commit(nil, nil), ErrFillEnded)
	if err := g.Abort(); err != nil {
		t.Errorf("Abort after Close: got error %v", err)
	}
	if mem.closed != 0 {
		t.Errorf("with a lease held: memory is closed already")
	}
	giveBack(t, l)
	if mem.closed != 1 || mem.lent != 0 {
		t.Errorf("after the last lease: got closed %d times, %d buffers lent; want 1, 0", mem.closed, mem.lent)
	}
	wantError(t, "second Release after Close", l.Release(), ErrReleased)
}

func TestMemoryFailureLeavesNothingBehind(t *testing.T) {
	boom := errors.New("boom")
	o := options(2)
	mem := &countingMemory{Memory: o.Memory, fail: boom}
	o.Memory = mem
	c := newTestCache(t, o)
	_, err := c.Begin(id(0, 0), Demand, 0)
	wantError(t, "Begin without memory", err, boom)
	if !strings.Contains(fmt.Sprint(err), "layer 0 expert 0") {
		t.Errorf("error: got %q, want the expert named", err)
	}
	mem.fail = nil
	fill(t, c, id(0, 0), 0)
	fill(t, c, id(0, 1), 0)
	mem.fail = boom
	_, err = c.Begin(id(0, 2), Demand, 0) // moves a victim's slot
	wantError(t, "Begin without a move", err, boom)
	if s := c.Stats(); s.Used != pageBytes || s.Fills != 0 || s.Residents != 1 {
		t.Errorf("got used %d, fills %d, residents %d; want %d, 0, 1", s.Used, s.Fills, s.Residents, pageBytes)
	}
}

func TestMixedSizes(t *testing.T) {
	p := newFixedPolicy(smallShape)
	p.keys[0] = []float64{4, 3, 2, 1}
	p.distance[1] = -100
	o := options(6)
	o.Bytes = []int64{pageBytes, 4 * pageBytes}
	o.Policy = p
	mem := &countingMemory{Memory: o.Memory}
	o.Memory = mem
	c := newTestCache(t, o)
	for i := range 4 {
		fill(t, c, id(0, i), 0)
	}
	l := fill(t, c, id(1, 0), 1)[0] // throws two small ones out
	if c.Resident(id(0, 0)) || c.Resident(id(0, 1)) || !c.Resident(id(0, 2)) || len(l.Bytes()) != 4*pageBytes || !whole(l) {
		t.Errorf("a large expert: want it in the room of the two small ones that are expected last")
	}
	if got := c.Stats().Used; got != 6*pageBytes || mem.bytes != got {
		t.Errorf("used: got %d charged, %d lent; want %d", got, mem.bytes, 6*pageBytes)
	}
	giveBack(t, l)
	p.distance[1] = 100
	fill(t, c, id(0, 0), 0) // throws the large one out
	if got := c.Stats().Used; got != 3*pageBytes || mem.bytes != got {
		t.Errorf("used: got %d charged, %d lent; want %d", got, mem.bytes, 3*pageBytes)
	}
}

// TestMemoryOnItsWayBackIsCharged looks at the books from inside of Give and
// Move, where the memory of evicted experts is still lent.
func TestMemoryOnItsWayBackIsCharged(t *testing.T) {
	o := options(8)
	o.Bytes = []int64{pageBytes, 4 * pageBytes}
	mem := &countingMemory{Memory: o.Memory}
	o.Memory = mem
	c := newTestCache(t, o)
	looks := 0
	mem.look = func() {
		looks++
		if s := c.Stats(); mem.bytes > s.Used || s.Used > s.Peak || s.Peak > 8*pageBytes {
			t.Errorf("inside of the memory: got %d lent, %d used, peak %d; want them ascending to %d", mem.bytes, s.Used, s.Peak, 8*pageBytes)
		}
	}
	for _, e := range []layout.ExpertID{id(1, 0), id(1, 1), id(0, 0), id(0, 1), id(0, 2), id(0, 3), id(1, 2), id(1, 3), id(0, 0)} {
		fill(t, c, e, 0)
	}
	if err := c.SetBudget(4 * pageBytes); err != nil {
		t.Fatal(err)
	}
	if looks < 6 {
		t.Errorf("got %d looks, want at least 6", looks)
	}
	mem.look = nil
}

func TestCloseWaitsForMemoryOnItsWayBack(t *testing.T) {
	o := options(4)
	mem := &countingMemory{Memory: o.Memory}
	o.Memory = mem
	c := newTestCache(t, o)
	for i := range 4 {
		fill(t, c, id(0, i), 0)
	}
	mem.look = func() { // SetBudget is at work off the lock
		mem.look = nil
		if err := c.Close(); err != nil {
			t.Errorf("Close: got error %v", err)
		}
		if mem.closed != 0 {
			t.Errorf("Close during a Give: memory is closed already")
		}
	}
	if err := c.SetBudget(2 * pageBytes); err != nil {
		t.Fatal(err)
	}
	if mem.closed != 1 || mem.lent != 0 {
		t.Errorf("after the Give: got closed %d times, %d buffers lent; want 1, 0", mem.closed, mem.lent)
	}
}

// countingMemory counts what is lent, fails when told to, and calls look, if
// there is one, before it takes anything back.
type countingMemory struct {
	Memory
	look         func()
	lent, closed int
	bytes        int64
	fail         error
}

func (m *countingMemory) Take(e layout.ExpertID, n int64) ([]byte, error) {
	if m.fail != nil {
		return nil, m.fail
	}
	m.lent++
	m.bytes += n
	return m.Memory.Take(e, n)
}

func (m *countingMemory) Move(b []byte, e layout.ExpertID, n int64) ([]byte, error) {
	if m.look != nil {
		m.look()
	}
	m.bytes += n - int64(len(b))
	if m.fail != nil {
		m.bytes -= n
		m.lent--
		return nil, m.fail
	}
	return m.Memory.Move(b, e, n)
}

func (m *countingMemory) Give(b []byte) {
	if m.look != nil {
		m.look()
	}
	m.lent--
	m.bytes -= int64(len(b))
	m.Memory.Give(b)
}

func (m *countingMemory) Close() error {
	m.closed++
	return m.Memory.Close()
}
