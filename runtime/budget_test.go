package runtime_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"outrider/experts"
	"outrider/internal/device"
	"outrider/runtime"
	"outrider/trace"
)

// A lower budget holds at every later step, however many misses come, and until it
// is raised again.
func TestLoweredBudgetStaysLow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, 12, device.Model{}, runtime.Options{Keep: runtime.KeepLRU, Poison: true})
		defer m.Close()
		s := m.NewSession()
		r := rand.New(rand.NewPCG(1, 2))
		run := func(passes int, budget int64) {
			for range passes {
				s.Step(trace.Decode, nil)
				for layer := range small.Layers {
					serve(t, m, s, layer, wander(r, small, small.TopK))
					if used := m.Stats().Memory.Used; used > budget {
						t.Fatalf("%d bytes in use, want %d at most", used, budget)
					}
				}
			}
		}
		run(50, 12*slotBytes)
		for _, slots := range []int64{5, 9, 3} {
			if err := m.SetBudget(slots * slotBytes); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			st := m.Stats()
			if st.Budget != slots*slotBytes || st.BudgetLimit != st.Budget || st.Memory.Budget != st.Budget {
				t.Errorf("budget %d, limit %d, of the memory %d: want %d of all", st.Budget, st.BudgetLimit, st.Memory.Budget, slots*slotBytes)
			}
			run(1000, slots*slotBytes)
		}
		st := m.Stats()
		if misses := st.Lookups - st.Hits; misses < 10000 {
			t.Errorf("only %d misses came, the test wants 10000", misses)
		}
		if st.Memory.Peak != 12*slotBytes {
			t.Errorf("peak %d bytes, want the first budget, %d", st.Memory.Peak, 12*slotBytes)
		}
		if err := m.SetBudget(12 * slotBytes); err != nil {
			t.Fatal(err)
		}
		run(50, 12*slotBytes)
		if used := m.Stats().Memory.Used; used != 12*slotBytes {
			t.Errorf("%d bytes in use after raising, want all %d", used, 12*slotBytes)
		}
	})
}

// A use that was promised more than a lowered budget gets all of it, and gives it
// back to the system when it ends.
func TestUseKeepsWhatItWasPromised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, 8, slow, runtime.Options{NoSpeculation: true, Depth: 1})
		defer m.Close()
		s := m.NewSession()
		use, err := s.Use(t.Context(), 0, choose(1, 2, 3, 4, 5, 6))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2500 * time.Microsecond) // two are read, four are not
		if err := m.SetBudget(3 * slotBytes); err != nil {
			t.Fatal(err)
		}
		if err := use.Wait(t.Context()); err != nil {
			t.Fatalf("the use that was under way: %v", err)
		}
		if st := m.Stats(); st.Memory.Used != 6*slotBytes || st.Budget != 3*slotBytes {
			t.Errorf("%d bytes in use, budget %d: want the six experts held, and the new budget", st.Memory.Used, st.Budget)
		}
		// Another session waits, and then goes by waves of the new budget.
		other, err := m.NewSession().Use(t.Context(), 1, choose(1, 2, 3, 4, 5))
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan int)
		go func() {
			n := 0
			for ex, err := range other.Ready(t.Context()) {
				if err != nil {
					t.Error(err)
					break
				}
				ex.Release()
				n++
			}
			other.Release()
			served <- n
		}()
		synctest.Wait()
		use.Release()
		if n := <-served; n != 5 {
			t.Errorf("the waiting use got %d experts, want 5", n)
		}
		synctest.Wait()
		if st := m.Stats().Memory; st.Used > 3*slotBytes || st.Budget != 3*slotBytes {
			t.Errorf("%d bytes in use of %d, want %d at most", st.Used, st.Budget, 3*slotBytes)
		}
	})
}

// Who holds memory and waits for more gets what is left, or an error, never a wait
// without an end.
func TestHeldMemoryIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, 6, slow, runtime.Options{NoSpeculation: true})
		defer m.Close()
		s := m.NewSession()
		held, err := s.Use(t.Context(), 0, choose(1, 2, 3, 4))
		if err != nil {
			t.Fatal(err)
		}
		if err := held.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		next, err := s.Use(t.Context(), 1, choose(1, 2, 3))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for ex, err := range next.Ready(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			ex.Release() // the two slots that are left serve three experts
			n++
		}
		if n != 3 {
			t.Errorf("got %d experts, want 3 in waves", n)
		}
		next.Release()
		if err := m.SetBudget(4 * slotBytes); err != nil {
			t.Fatal(err)
		}
		next, err = s.Use(t.Context(), 1, choose(1, 2, 3))
		if err != nil {
			t.Fatal(err)
		}
		err = next.Wait(t.Context())
		if !errors.Is(err, runtime.ErrRoomHeld) || !strings.Contains(err.Error(), "release a use") {
			t.Errorf("got %v, want ErrRoomHeld and the remedy", err)
		}
		held.Release()
		if err := next.Wait(t.Context()); err != nil {
			t.Errorf("after the release: %v", err)
		}
		next.Release()
	})
}

func TestSetBudgetRefusals(t *testing.T) {
	m := open(t, 8, device.Model{}, runtime.Options{})
	for _, bytes := range []int64{2*slotBytes - 1, 0, -5} {
		err := m.SetBudget(bytes)
		if !errors.Is(err, experts.ErrBelowFloor) || !strings.Contains(err.Error(), "16384") {
			t.Errorf("%d bytes: got %v, want ErrBelowFloor with the bytes needed", bytes, err)
		}
	}
	if st := m.Stats(); st.Budget != 8*slotBytes || st.BudgetLimit != 8*slotBytes || st.Memory.Budget != 8*slotBytes {
		t.Errorf("a refused budget changed it: %d, limit %d, of the memory %d", st.Budget, st.BudgetLimit, st.Memory.Budget)
	}
	if err := m.SetBudget(2 * slotBytes); err != nil {
		t.Errorf("the floor itself: %v", err)
	}
	m.Close()
	if err := m.SetBudget(8 * slotBytes); !errors.Is(err, runtime.ErrClosed) {
		t.Errorf("after Close: got %v, want ErrClosed", err)
	}
}

// Sessions run over a flaky drive while the budget goes up and down. All come to
// an end with their own weights, and the last budget holds.
func TestBudgetChangesUnderLoad(t *testing.T) {
	for _, o := range []runtime.Options{{}, {Keep: runtime.KeepLRU}} {
		synctest.Test(t, func(t *testing.T) {
			o.Poison = true
			m := open(t, 10, device.Model{Latency: time.Millisecond, Rule: flaky(3)}, o)
			var steps, failed atomic.Int64
			var sessions, changes sync.WaitGroup
			stop := make(chan struct{})
			for n := range 4 {
				sessions.Go(func() { shiftingSession(m, uint64(n), &steps, &failed) })
			}
			changes.Go(func() {
				for r := rand.New(rand.NewPCG(7, 7)); ; {
					select {
					case <-stop:
						return
					case <-time.After(time.Duration(r.IntN(20)) * time.Millisecond):
						if err := m.SetBudget(int64(2+r.IntN(14)) * slotBytes); err != nil {
							t.Error(err)
						}
					}
				}
			})
			sessions.Wait()
			close(stop)
			changes.Wait()
			time.Sleep(time.Second) // reads ahead end
			if err := m.SetBudget(4 * slotBytes); err != nil {
				t.Error(err)
			}
			st := m.Stats()
			if st.Memory.Used > 4*slotBytes || st.Memory.Leases != 0 || st.Memory.Peak > 15*slotBytes {
				t.Errorf("%d bytes in use, peak %d, %d leases: want 4 slots, 15 and none", st.Memory.Used, st.Memory.Peak, st.Memory.Leases)
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			t.Logf("%d experts checked, %d failed for good", steps.Load(), failed.Load())
		})
	}
}

// shiftingSession is a runner that releases what it has computed.
func shiftingSession(m *model, seed uint64, steps, failed *atomic.Int64) {
	r := rand.New(rand.NewPCG(seed, 17))
	s := m.NewSession()
	defer s.Close()
	for pass := range 40 {
		s.Step(trace.Decode, nil)
		for layer := range small.Layers {
			use, err := s.Use(m.t.Context(), layer, choose(wander(r, small, 2+pass%6)...))
			if err != nil {
				m.t.Error(err)
				return
			}
			for ex, err := range use.Ready(m.t.Context()) {
				if err != nil {
					failed.Add(1)
					continue
				}
				m.check(ex)
				ex.Release()
				steps.Add(1)
			}
			if st := m.Stats().Memory; st.Used > 15*slotBytes {
				m.t.Errorf("%d bytes in use, there was never a budget of more than %d", st.Used, 15*slotBytes)
			}
			use.Release()
		}
	}
}
