package experts

import (
	"math/rand/v2"
	"os"
	"runtime/debug"
	"sync"
	"testing"

	"outrider/layout"
)

// processMemory is a number of /proc/self/status, after the Go heap gave back
// what it can.
func processMemory(t testing.TB, key string) int64 {
	t.Helper()
	debug.FreeOSMemory()
	text, err := readSmall(os.DirFS("/"), statusFile)
	n, ok := keyedBytes(text, key)
	if err != nil || !ok {
		t.Skipf("the system does not tell %s: %v", key, err)
	}
	return n
}

// touch commits a slot as a read does, at less cost than writing all of it.
func touch(b []byte) {
	for i := 0; i < len(b); i += pageBytes {
		b[i] = 1
	}
}

// TestProcessStaysInTheBudget runs a trace whose experts shift, with failed and
// stuck reads, leases and changes of the budget, over records of odd sizes. The
// kernel's count of committed memory follows the cache's own, and the process
// never grows by more than the budget and 5 %.
func TestProcessStaysInTheBudget(t *testing.T) {
	o := Options{
		Shape: layout.Shape{Layers: 4, Experts: 64, TopK: 2}, BudgetBytes: 256 * mib, Protect: 2,
		Bytes: []int64{3*mib - 8192, mib + mib/2 + 4096, 5*mib + 12288, 700 << 10},
	}
	t.Run("pooled", func(t *testing.T) {
		c := newTestCache(t, o)
		w := runShifting(t, c, 600, func() [][]byte { return c.memory.(*arena).segments })
		if w.spares == 0 || w.refused > 100 {
			t.Errorf("got %d spares, %d refused; want some, few", w.spares, w.refused)
		}
	})
	t.Run("fixed", func(t *testing.T) {
		m, err := NewFixedMemory(o.Shape, o.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		moves := countMoves(m)
		o.Memory = m
		w := runShifting(t, newTestCache(t, o), 240, func() [][]byte { return m.maps })
		if w.refused > 60 {
			t.Errorf("got %d refused, want few", w.refused)
		}
		if moves == nil {
			return
		}
		t.Logf("%d runs of pages moved, %d refused", moves.Load(), w.refused)
		if moves.Load() < 50 {
			t.Errorf("got %d runs of pages moved, want at least 50", moves.Load())
		}
	})
}

// runShifting plays the trace and compares what is charged with what is committed.
func runShifting(t *testing.T, c *Cache, turns int, segments func() [][]byte) *shifting {
	budget := c.Stats().Budget
	before := processMemory(t, "VmRSS:")
	peakIsNew := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) == nil // VmHWM starts anew

	w := &shifting{t: t, c: c, random: rand.New(rand.NewPCG(5, 0))}
	for i := range turns {
		w.turn(i)
		s := c.Stats()
		if s.Used > max(s.Budget, w.held) || s.Peak > budget {
			t.Fatalf("turn %d: got %d used, peak %d; want at most %d, %d", i, s.Used, s.Peak, max(s.Budget, w.held), budget)
		}
		w.held = min(w.held, s.Used)
		if i%25 != 24 {
			continue
		}
		if rss, _ := committed(t, segments()); rss > s.Used+s.Used/20 {
			t.Fatalf("turn %d: got %d committed, want at most the %d charged and 5 %%", i, rss, s.Used)
		}
	}
	if peak := processMemory(t, "VmHWM:") - before; peakIsNew && peak > budget+budget/20 {
		t.Errorf("process: grew by %d MiB at most, want no more than %d and 5 %%", peak/mib, budget/mib)
	}
	w.end()
	if w.strays == 0 || w.aborts == 0 {
		t.Errorf("got %d strays, %d aborts; want some, some", w.strays, w.aborts)
	}
	used := c.Stats().Used
	grown := processMemory(t, "VmRSS:") - before
	t.Logf("%d MiB charged, process grown by %d MiB", used/mib, grown/mib)
	if grown > used+budget/20 || grown < used-budget/20 {
		t.Errorf("process: got grown by %d MiB, want the %d charged within 5 %% of the budget", grown/mib, used/mib)
	}
	return w
}

// shifting makes the turns of runShifting.
type shifting struct {
	t      *testing.T
	c      *Cache
	random *rand.Rand
	leases []Lease
	stuck  []Stray
	held   int64 // what was charged when the budget was lowered

	aborts, spares, strays, refused int
}

func (w *shifting) turn(i int) {
	w.c.Step()
	if len(w.leases) > 8 {
		giveBack(w.t, w.leases[:4]...)
		w.leases = append(w.leases[:0], w.leases[4:]...)
	}
	if len(w.stuck) > 6 {
		w.stuck[0].Release()
		w.stuck = append(w.stuck[:0], w.stuck[1:]...)
	}
	if i%60 == 59 {
		w.held = w.c.Stats().Used
		if err := w.c.SetBudget((100 + w.random.Int64N(157)) * mib); err != nil {
			w.t.Fatalf("SetBudget: got error %v", err)
		}
	}
	shape := w.c.shape
	u := w.random.Float64()
	index := (i/60*7 + int(u*u*float64(shape.Experts))) % shape.Experts // what is hot moves on
	w.want(id(w.random.IntN(shape.Layers), index))
}

func (w *shifting) want(e layout.ExpertID) {
	if l, out := w.c.Pin(e); out.Resident() {
		w.leases = append(w.leases, l)
		return
	}
	f, err := w.c.Begin(e, Demand, 0)
	if err != nil {
		w.refused++
		return
	}
	touch(f.Bytes())
	if w.random.IntN(12) == 0 {
		if spare, err := f.Spare(); err == nil {
			w.spares++
			touch(spare.Bytes())
			var old Stray
			if f, old, err = f.Swap(spare); err != nil {
				w.t.Fatalf("Swap of %v: got error %v", e, err)
			}
			w.stuck = append(w.stuck, old)
		}
	}
	switch w.random.IntN(20) {
	case 0:
		w.aborts++
		err = f.Abort()
	case 1:
		w.strays++
		var stray Stray
		stray, err = f.Abandon()
		w.stuck = append(w.stuck, stray)
	default:
		leases := make([]Lease, 1)
		err = f.Commit(nil, leases)
		w.leases = append(w.leases, leases...)
	}
	if err != nil {
		w.t.Errorf("end of the fill of %v: got error %v", e, err)
	}
}

// end fills what is free, so that the budget is what the process holds.
func (w *shifting) end() {
	giveBack(w.t, w.leases...)
	for _, s := range w.stuck {
		s.Release()
	}
	if err := w.c.SetBudget(256 * mib); err != nil {
		w.t.Errorf("SetBudget: got error %v", err)
	}
	for i := range w.c.shape.Count() {
		if f, err := w.c.Begin(w.c.shape.ID(i), Demand, 0); err == nil {
			touch(f.Bytes())
			_ = f.Commit(nil, nil)
		}
	}
}

// TestPlanEqualsAllocation: as many experts fit as their bytes say, and the
// kernel has committed just those.
func TestPlanEqualsAllocation(t *testing.T) {
	for name, size := range map[string]int64{
		"small": 300 << 10, "odd": 3*mib - 8192, "whole huge pages": 4 * mib, "a page over": 2*mib + 4096,
	} {
		const budget = 48 * mib
		shape := layout.Shape{Layers: 1, Experts: int(budget/size) + 5, TopK: 1}
		for _, fixed := range []bool{false, true} {
			o := Options{Shape: shape, Bytes: []int64{size}, BudgetBytes: budget}
			var segments [][]byte
			if fixed {
				m, err := NewFixedMemory(shape, o.Bytes)
				if err != nil {
					t.Fatalf("%s: NewFixedMemory: got error %v", name, err)
				}
				o.Memory, segments = m, m.maps
			}
			c := newTestCache(t, o)
			if !fixed {
				segments = c.memory.(*arena).segments
			}
			for i := range shape.Experts {
				f := begin(t, c, id(0, i))
				touch(f.Bytes())
				if err := f.Commit(nil, nil); err != nil {
					t.Fatalf("%s: Commit: got error %v", name, err)
				}
			}
			plan := budget / size * size
			rss, _ := committed(t, segments)
			if s := c.Stats(); s.Used != plan || rss > plan+plan/100 || rss < plan-plan/100 {
				t.Errorf("%s, fixed %v: got %d charged, %d committed; want %d, the same within 1 %%", name, fixed, s.Used, rss, plan)
			}
			if err := c.Close(); err != nil {
				t.Errorf("%s: Close: got error %v", name, err)
			}
		}
	}
}

// TestOpenCloseRaceLeaksNothing opens caches and closes them while experts are
// being filled, abandoned and leased: no memory and no address space stays.
func TestOpenCloseRaceLeaksNothing(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 32, TopK: 1}
	round := func() {
		c, err := New(Options{Shape: shape, Bytes: []int64{2*mib + 4096}, BudgetBytes: 32 * mib})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		busy := make(chan struct{}, 1)
		for worker := range 4 {
			wg.Go(func() {
				for i := range 8 {
					if i == 3 {
						select {
						case busy <- struct{}{}:
						default:
						}
					}
					f, err := c.Begin(id(0, worker*8+i), Demand, 0)
					if err != nil {
						continue
					}
					if i%4 == 3 {
						hedgeAndAbandon(f, func() { touch(f.Bytes()) })
						continue
					}
					touch(f.Bytes())
					leases := make([]Lease, 1)
					if f.Commit(nil, leases) == nil {
						touch(leases[0].Bytes())
						giveBack(t, leases...)
					}
				}
			})
		}
		wg.Go(func() {
			<-busy
			_ = c.Close()
		})
		wg.Wait()
		checkEmpty(t, c)
	}
	for range 5 {
		round()
	}
	rss, size := processMemory(t, "VmRSS:"), processMemory(t, "VmSize:")
	for range 25 {
		round()
	}
	rss, size = processMemory(t, "VmRSS:")-rss, processMemory(t, "VmSize:")-size
	if rss > 16*mib || size > 512*mib {
		t.Errorf("after 25 rounds of 32 MiB: process grown by %d MiB, its address space by %d MiB; want nearly nothing", rss/mib, size/mib)
	}
}
