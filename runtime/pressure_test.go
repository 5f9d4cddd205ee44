package runtime_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"outrider/experts"
	"outrider/internal/device"
	"outrider/runtime"
)

// neighbour is a system whose other tasks may want memory: then a fifth of the
// time is lost waiting for it.
type neighbour struct {
	greedy atomic.Bool
	broken atomic.Bool
	looked atomic.Int64
	stall  atomic.Int64
}

func (n *neighbour) sample() (experts.PressureSample, error) {
	n.looked.Add(1)
	if n.broken.Load() {
		return experts.PressureSample{}, errors.New("no such device")
	}
	if n.greedy.Load() {
		n.stall.Add(time.Second.Microseconds() / 5)
	}
	return experts.PressureSample{StallMicros: n.stall.Load()}, nil
}

// elapse lets time go by, and all that was to happen by its end.
func elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// watched is a runtime of 16 slots whose system is the neighbour's.
func watched(t *testing.T, n *neighbour, o runtime.Options) *runtime.Runtime {
	t.Helper()
	records, err := device.NewRecords(device.RecordsOptions{Shape: small})
	if err != nil {
		t.Fatal(err)
	}
	o.BudgetBytes = 16 * slotBytes
	rt, err := runtime.New(records, o.WithPressure(n.sample))
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

// The budget gives way while others need memory, down to one layer of one token,
// and comes back when they are gone.
func TestBudgetFollowsPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(neighbour)
		var log bytes.Buffer
		rt := watched(t, n, runtime.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer rt.Close()
		if err := rt.Preload(t.Context()); err != nil {
			t.Fatal(err)
		}
		elapse(time.Minute)
		if st := rt.Stats(); !st.Pressure.Watched || st.Pressure.Shrinks != 0 || st.Budget != 16*slotBytes {
			t.Errorf("without pressure: budget %d, %+v; want all of it, untouched", st.Budget, st.Pressure)
		}

		n.greedy.Store(true)
		before := rt.Stats().Budget
		for range 300 {
			elapse(time.Second)
			st := rt.Stats()
			if st.Budget > before || st.Budget < st.Memory.Floor || st.Memory.Used > st.Budget {
				t.Fatalf("budget %d after %d, %d bytes in use, floor %d: want it to fall, the memory with it, not below the floor",
					st.Budget, before, st.Memory.Used, st.Memory.Floor)
			}
			before = st.Budget
		}
		st := rt.Stats()
		if st.Budget != st.Memory.Floor || st.BudgetLimit != 16*slotBytes || st.Pressure.Shrinks == 0 || !strings.Contains(st.Pressure.LastReason, "stalls") {
			t.Errorf("under pressure: budget %d, limit %d, %+v; want the floor, the limit as it was and the reason", st.Budget, st.BudgetLimit, st.Pressure)
		}

		n.greedy.Store(false)
		elapse(2 * time.Hour)
		if st := rt.Stats(); st.Budget != 16*slotBytes || st.Pressure.Grows == 0 {
			t.Errorf("afterwards: budget %d, %+v; want all of it again", st.Budget, st.Pressure)
		}
		if err := rt.Close(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(log.String(), "budget follows memory pressure"); int64(got) != rt.Stats().Pressure.Shrinks+rt.Stats().Pressure.Grows {
			t.Errorf("%d changes in the log, %+v", got, rt.Stats().Pressure)
		}
		looked := n.looked.Load()
		elapse(time.Minute)
		if n.looked.Load() != looked {
			t.Error("still looking at pressure after Close")
		}
	})
}

// What was set by hand is the limit, also for growing back.
func TestSetBudgetBoundsWhatPressureAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(neighbour)
		rt := watched(t, n, runtime.Options{})
		defer rt.Close()
		if err := rt.SetBudget(8 * slotBytes); err != nil {
			t.Fatal(err)
		}
		elapse(time.Hour)
		if st := rt.Stats(); st.Budget != 8*slotBytes || st.BudgetLimit != 8*slotBytes {
			t.Errorf("budget %d, limit %d: want 8 slots to stay", st.Budget, st.BudgetLimit)
		}
		n.greedy.Store(true)
		elapse(4 * time.Second)
		pressed := rt.Stats().Budget
		if pressed >= 8*slotBytes {
			t.Fatalf("budget %d under pressure, want less than 8 slots", pressed)
		}
		if err := rt.SetBudget(12 * slotBytes); err != nil {
			t.Fatal(err)
		}
		if st := rt.Stats(); st.Budget != pressed || st.BudgetLimit != 12*slotBytes {
			t.Errorf("budget %d, limit %d: want what pressure allows, %d, until it is gone", st.Budget, st.BudgetLimit, pressed)
		}
		n.greedy.Store(false)
		elapse(2 * time.Hour)
		if got := rt.Stats().Budget; got != 12*slotBytes {
			t.Errorf("budget %d afterwards, want the new limit of 12 slots", got)
		}
	})
}

func TestFixedBudgetIsFixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(neighbour)
		n.greedy.Store(true)
		rt := watched(t, n, runtime.Options{FixedBudget: true})
		defer rt.Close()
		elapse(time.Hour)
		if st := rt.Stats(); st.Budget != 16*slotBytes || st.Pressure != (runtime.PressureStats{}) || n.looked.Load() != 0 {
			t.Errorf("budget %d, %+v, looked %d times: want it fixed, and nobody to look", st.Budget, st.Pressure, n.looked.Load())
		}
	})
}

// A system that stops telling is no reason to change anything, and is said once.
func TestPressureThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(neighbour)
		var log bytes.Buffer
		rt := watched(t, n, runtime.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		n.greedy.Store(true)
		elapse(5 * time.Second)
		pressed := rt.Stats().Budget
		n.broken.Store(true)
		elapse(time.Hour)
		if got := rt.Stats().Budget; got != pressed || pressed >= 16*slotBytes {
			t.Errorf("budget %d, want the %d from before the system went blind", got, pressed)
		}
		if err := rt.Close(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(log.String(), "no such device"); got != 1 {
			t.Errorf("said %d times why, want once", got)
		}
	})
}
