package experts

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"outrider/layout"
)

// TestConcurrent lets goroutines pin, fill, abort, swap, abandon, release and
// lower the budget at random, while stuck reads go on writing into strays. At every step the budget and the content of what is leased
// are checked; at the end nothing may be left.
func TestConcurrent(t *testing.T) {
	rows := map[string]concurrentRow{
		"heap":    {memory: func([]int64) (Memory, error) { return NewHeapMemory(), nil }, unit: pageBytes, turns: 1500}, // seen by the race detector
		"default": {unit: pageBytes, turns: 1500},
	}
	if m, err := NewFixedMemory(concurrentShape, []int64{pageBytes, pageBytes, pageBytes}); err == nil {
		_ = m.Close()
		fixed := func(bytes []int64) (Memory, error) { return NewFixedMemory(concurrentShape, bytes) }
		rows["fixed"] = concurrentRow{memory: fixed, unit: pageBytes, turns: 1500}
		rows["fixed, pages move"] = concurrentRow{memory: fixed, unit: mib, turns: 80}
	}
	for name, row := range rows {
		for seed := range uint64(3) {
			t.Run(name, func(t *testing.T) { runConcurrent(t, row, seed) })
		}
	}
}

// concurrentRow has layers of one, three and two units.
type concurrentRow struct {
	memory func(bytes []int64) (Memory, error) // nil: the default
	unit   int64
	turns  int
}

var concurrentShape = layout.Shape{Layers: 3, Experts: 8, TopK: 2}

func runConcurrent(t *testing.T, row concurrentRow, seed uint64) {
	budget := 24 * row.unit
	o := Options{
		Shape: concurrentShape, Bytes: []int64{row.unit, 3 * row.unit, 2 * row.unit},
		BudgetBytes: budget, Poison: true, Protect: 2,
	}
	if row.memory != nil {
		memory, err := row.memory(o.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		o.Memory = &meter{Memory: memory, t: t, most: budget}
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for worker := range 6 {
		w := randomWorker{c: c, t: t, random: rand.New(rand.NewPCG(seed, uint64(worker)))}
		wg.Go(func() {
			for range row.turns {
				w.turn()
				if s := c.Stats(); s.Used > budget || s.Peak > budget {
					t.Errorf("seed %d: got %d used, peak %d; want at most %d", seed, s.Used, s.Peak, budget)
					return
				}
			}
			w.stuck.Wait()
			giveBack(t, w.held...)
		})
	}
	wg.Go(func() {
		random := rand.New(rand.NewPCG(seed, 99))
		for range 100 {
			if err := c.SetBudget((6 + random.Int64N(19)) * row.unit); err != nil {
				t.Errorf("SetBudget: got error %v", err)
			}
			c.Invalidate(random.IntN(concurrentShape.Layers))
			c.Step()
			runtime.Gosched()
		}
	})
	wg.Wait()
	if s := c.Stats(); s.Used > s.Budget || s.ReleasedTwice != 0 || s.Used != s.Evictable {
		t.Errorf("seed %d, at rest: got %+v", seed, s)
	}
	checkEmpty(t, c)
}

// meter checks that what is lent never exceeds the budget.
type meter struct {
	Memory
	t    *testing.T
	most int64
	lent atomic.Int64
}

func (m *meter) add(n int64) {
	if got := m.lent.Add(n); got > m.most || got < 0 {
		m.t.Errorf("memory: got %d bytes lent, want 0 to %d", got, m.most)
	}
}

func (m *meter) Take(e layout.ExpertID, n int64) ([]byte, error) {
	m.add(n)
	return m.Memory.Take(e, n)
}

func (m *meter) Move(b []byte, e layout.ExpertID, n int64) ([]byte, error) {
	more := n - int64(len(b))
	m.add(max(0, more))
	b, err := m.Memory.Move(b, e, n)
	m.add(min(0, more))
	return b, err
}

func (m *meter) Give(b []byte) {
	m.Memory.Give(b)
	m.add(-int64(len(b)))
}

func (m *meter) Close() error {
	m.add(0)
	if got := m.lent.Load(); got != 0 {
		m.t.Errorf("memory closed with %d bytes lent, want 0", got)
	}
	return m.Memory.Close()
}

// randomWorker is one goroutine of TestConcurrent.
type randomWorker struct {
	c      *Cache
	t      *testing.T
	random *rand.Rand
	held   []Lease
	stuck  sync.WaitGroup // reads that write into strays
}

func (w *randomWorker) turn() {
	e := w.c.shape.ID(w.random.IntN(w.c.shape.Count()))
	if len(w.held) > 0 && w.random.IntN(2) == 0 {
		i := w.random.IntN(len(w.held))
		w.check(w.held[i])
		giveBack(w.t, w.held[i])
		w.held[i] = w.held[len(w.held)-1]
		w.held = w.held[:len(w.held)-1]
	}
	if l, out := w.c.Pin(e); out.Resident() {
		w.check(l)
		w.held = append(w.held, l)
		return
	}
	class := Class(w.random.IntN(2))
	f, err := w.c.Begin(e, class, w.random.Float64()*3-1)
	if err != nil {
		if !errors.Is(err, ErrNoRoom) && !errors.Is(err, ErrNotWorth) && !errors.Is(err, ErrFilling) && !errors.Is(err, ErrResident) {
			w.t.Errorf("Begin: got error %v", err)
		}
		return
	}
	if w.random.IntN(4) == 0 {
		f = w.hedge(f)
	}
	write(f)
	switch w.random.IntN(8) {
	case 0:
		if err := f.Abort(); err != nil {
			w.t.Errorf("Abort: got error %v", err)
		}
		return
	case 1:
		stray, err := f.Abandon()
		if err != nil {
			w.t.Errorf("Abandon: got error %v", err)
		}
		w.stick(f.Bytes(), stray)
		return
	}
	leases := make([]Lease, w.random.IntN(3))
	if err := f.Commit([]layout.Part{{At: 0, Bytes: 10}}, leases); err != nil {
		w.t.Errorf("Commit: got error %v", err)
	}
	w.held = append(w.held, leases...)
}

// hedge reads into a second buffer too, where there is one; either may win.
func (w *randomWorker) hedge(f Fill) Fill {
	spare, err := f.Spare()
	if err != nil {
		if !errors.Is(err, ErrNoRoom) && !errors.Is(err, ErrFixed) {
			w.t.Errorf("Spare: got error %v", err)
		}
		return f
	}
	if w.random.IntN(2) == 0 {
		w.stick(spare.Bytes(), spare)
		return f
	}
	fresh, old, err := f.Swap(spare)
	if err != nil {
		w.t.Errorf("Swap: got error %v", err)
	}
	w.stick(f.Bytes(), old)
	return fresh
}

// stick is a read that arrives late, in memory that is in no slot.
func (w *randomWorker) stick(buf []byte, stray Stray) {
	late := w.random.IntN(4)
	w.stuck.Go(func() {
		for range late {
			overwrite(buf, 0xEE)
			runtime.Gosched()
		}
		stray.Release()
	})
}

func (w *randomWorker) check(l Lease) {
	if !whole(l) {
		w.t.Errorf("lease of %v: got other bytes than were written", l.ID())
	}
}

// TestCloseUnderWay closes while others fill and release, and checks that the
// memory is closed once, after everything ended.
func TestCloseUnderWay(t *testing.T) {
	for range 50 {
		mem := &closeOnce{Memory: NewHeapMemory()}
		o := options(4)
		o.Memory = mem
		c, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for worker := range 4 {
			wg.Go(func() {
				for i := range 20 {
					f, err := c.Begin(id(worker%2, (worker+i)%4), Demand, 0)
					if err != nil {
						continue
					}
					mem.use(t)
					write(f)
					leases := make([]Lease, 1)
					if i%3 == 0 {
						hedgeAndAbandon(f, func() { mem.use(t) })
						continue
					}
					if f.Commit(nil, leases) == nil {
						mem.use(t)
						giveBack(t, leases...)
					}
				}
			})
		}
		wg.Go(func() {
			if err := c.Close(); err != nil {
				t.Errorf("Close: got error %v", err)
			}
		})
		wg.Wait()
		if got := mem.closed.Load(); got != 1 {
			t.Fatalf("memory: got closed %d times, want once", got)
		}
		checkEmpty(t, c)
	}
}

// hedgeAndAbandon swaps a spare in, if there is one, and abandons the fill; use
// is called while its memory is out.
func hedgeAndAbandon(f Fill, use func()) {
	spare, err := f.Spare()
	if err == nil {
		fresh, old, err := f.Swap(spare)
		if err == nil {
			f, spare = fresh, old
		}
	}
	if stray, err := f.Abandon(); err == nil {
		use()
		stray.Release()
	}
	if err == nil {
		use()
		spare.Release()
	}
}

// closeOnce is a Memory that knows whether it is closed.
type closeOnce struct {
	Memory
	closed atomic.Int32
}

func (m *closeOnce) Close() error {
	m.closed.Add(1)
	return m.Memory.Close()
}

func (m *closeOnce) use(t *testing.T) {
	if m.closed.Load() != 0 {
		t.Errorf("memory: got closed with a fill or a lease held")
	}
}
