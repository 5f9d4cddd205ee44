package runtime_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"outrider/internal/device"
	"outrider/runtime"
)

// halves reads a record in two blocks of a millisecond, one after the other.
var halves = device.Model{BytesPerSecond: 4096e3}

// collect takes all projections of a use and checks their bytes.
func collect(t *testing.T, m *model, use runtime.Use) (at []time.Duration, whole int) {
	t.Helper()
	start := time.Now()
	for a, err := range use.Projections(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		tensor, ok := a.Tensor()
		want := m.records.Want(a.Expert.ID())
		if a.Index == 0 {
			want = want[:slotBytes/2]
		} else {
			want = want[slotBytes/2:]
		}
		if !ok || !bytes.Equal(tensor.Data, want) || tensor.Name != m.Record(0)[a.Index].Name {
			t.Errorf("%v, projection %d: got other bytes than its own", a.Expert.ID(), a.Index)
		}
		if _, ok := a.Expert.At(0); ok {
			whole++
		}
		at = append(at, time.Since(start))
	}
	return at, whole
}

func TestProjectionsComeAsTheyArrive(t *testing.T) {
	for _, on := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			m := open(t, 8, halves, runtime.Options{NoSpeculation: true, Projections: on, Depth: 1, Block: 4096})
			defer m.Close()
			use, err := m.NewSession().Use(t.Context(), 0, choose(3))
			if err != nil {
				t.Fatal(err)
			}
			at, _ := collect(t, m, use)
			want := []time.Duration{2 * time.Millisecond, 2 * time.Millisecond}
			if on {
				want[0] = time.Millisecond
			}
			if len(at) != 2 || at[0] != want[0] || at[1] != want[1] {
				t.Errorf("Projections %t: got them after %v, want %v", on, at, want)
			}
			use.Release()
			if use, err = m.NewSession().Use(t.Context(), 0, choose(3, 5)); err != nil { // 3 is a hit
				t.Fatal(err)
			}
			if at, _ = collect(t, m, use); len(at) != 4 || at[0] != 0 || at[1] != 0 || at[3] != 2*time.Millisecond {
				t.Errorf("Projections %t, a hit and a miss: got them after %v", on, at)
			}
			use.Release()
			if s := m.Stats(); s.Memory.Leases != 0 || s.Memory.Strays != 0 {
				t.Errorf("got %d leases and %d strays left", s.Memory.Leases, s.Memory.Strays)
			}
		})
	}
}

// What fails after its first projection says so, and gives its memory back with the
// use.
func TestProjectionsOfWhatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("bad sector")
		model := halves
		model.Rule = func(op device.Op) device.Effect {
			if op.Offset/4096%2 == 1 {
				return device.Effect{Err: bad}
			}
			return device.Effect{}
		}
		m := open(t, 8, model, runtime.Options{NoSpeculation: true, Projections: true, Depth: 1, Block: 4096, Poison: true})
		defer m.Close()
		use, err := m.NewSession().Use(t.Context(), 0, choose(3))
		if err != nil {
			t.Fatal(err)
		}
		var first runtime.Arrival
		failed := 0
		for a, err := range use.Projections(t.Context()) {
			switch {
			case err == nil:
				first = a
			case errors.Is(err, bad) && a.Index == -1:
				failed++
			default:
				t.Errorf("got %v", err)
			}
		}
		tensor, ok := first.Tensor()
		if failed != 1 || !ok || !bytes.Equal(tensor.Data, m.records.Want(first.Expert.ID())[:slotBytes/2]) {
			t.Errorf("got %d failures, the first projection %t or changed: want one, and its bytes until the release", failed, ok)
		}
		use.Release()
		if _, ok := first.Tensor(); ok || m.Stats().Memory.Strays != 0 {
			t.Errorf("after the release: got a projection %t, %d strays, want neither", ok, m.Stats().Memory.Strays)
		}
	})
}

// Experts released while they are read, uses released early, waves: nothing is left
// and nothing hangs.
func TestProjectionsAtRandom(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			m := open(t, 3, halves, runtime.Options{Projections: true, Depth: 2, Block: 4096, Poison: true})
			defer m.Close()
			rnd := rand.New(rand.NewPCG(seed, 1))
			s := m.NewSession()
			for pass := range 60 {
				ids := rnd.Perm(16)[:1+rnd.IntN(5)]
				list := make([]int32, len(ids))
				for i, id := range ids {
					list[i] = int32(id)
				}
				use, err := s.Use(t.Context(), pass%4, choose(list...))
				if err != nil {
					t.Fatal(err)
				}
				seen := map[int]int{}
				for a, err := range use.Projections(t.Context()) {
					if err != nil {
						t.Fatal(err)
					}
					if _, ok := a.Tensor(); !ok {
						t.Errorf("pass %d: %v has no projection %d", pass, a.Expert.ID(), a.Index)
					}
					if seen[a.Expert.Index()]++; seen[a.Expert.Index()] == 2 || rnd.IntN(10) == 0 {
						a.Expert.Release()
					}
					if rnd.IntN(40) == 0 {
						break
					}
				}
				use.Release()
			}
			s.Close()
			time.Sleep(time.Second)
			if st := m.Stats(); st.Memory.Leases != 0 || st.Memory.Strays != 0 || st.Memory.Peak > st.Memory.Budget {
				t.Errorf("got %d leases, %d strays, peak %d of %d", st.Memory.Leases, st.Memory.Strays, st.Memory.Peak, st.Memory.Budget)
			}
		})
	}
}
