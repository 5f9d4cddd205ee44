package runtime_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"outrider/internal/device"
	"outrider/runtime"
	"outrider/trace"
)

func TestUseServesTheRightWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, 8, slow, runtime.Options{Poison: true})
		defer m.Close()
		s := m.NewSession()
		defer s.Close()
		for token := range int32(30) {
			s.Step(trace.Decode, []int32{token})
			for layer := range small.Layers {
				ids := []int32{(token / 3) % 16, (token/3 + 5) % 16}
				use, err := s.Use(t.Context(), layer, choose(ids...))
				if err != nil {
					t.Fatal(err)
				}
				var got []int32
				for ex, err := range use.Ready(t.Context()) {
					if err != nil {
						t.Fatal(err)
					}
					m.check(ex)
					got = append(got, int32(ex.Index()))
				}
				slices.Sort(got)
				slices.Sort(ids)
				if !slices.Equal(got, ids) {
					t.Errorf("token %d layer %d: got experts %v, want %v", token, layer, got, ids)
				}
				use.Release()
			}
		}
		st := m.Stats()
		if st.Tokens != 30 || st.Lookups != 30*4*2 {
			t.Errorf("counted %d tokens and %d lookups, want 30 and 240", st.Tokens, st.Lookups)
		}
		if st.Hits == 0 || st.Stall == 0 {
			t.Errorf("hits %d, stall %v: want some of both", st.Hits, st.Stall)
		}
		if st.Memory.Leases != 0 || st.Memory.ReleasedTwice != 0 {
			t.Errorf("%d leases left, %d released twice: want none", st.Memory.Leases, st.Memory.ReleasedTwice)
		}
	})
}

// The slow expert of a layer must not hold up the fast one.
func TestReadyYieldsInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stall := func(op device.Op) device.Effect {
			if op.Offset == 3*slotBytes { // expert 3 of layer 0
				return device.Effect{Delay: time.Second}
			}
			return device.Effect{}
		}
		m := open(t, 8, device.Model{Latency: time.Millisecond, Rule: stall}, runtime.Options{NoSpeculation: true, Depth: 1 << 3})
		defer m.Close()
		s := m.NewSession()
		use, err := s.Use(t.Context(), 0, choose(3, 9)) // no neighbours, which are read together
		if err != nil {
			t.Fatal(err)
		}
		defer use.Release()
		began := time.Now()
		var took []time.Duration
		for _, err := range use.Ready(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(began))
		}
		if want := []time.Duration{time.Millisecond, time.Second + time.Millisecond}; !slices.Equal(took, want) {
			t.Errorf("experts arrived after %v, want %v", took, want)
		}
		if got := m.Stats().Stall; got != time.Second+time.Millisecond {
			t.Errorf("exposed stall %v, want 1.001s", got)
		}
	})
}

func TestWaitThenExpertByIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, 8, slow, runtime.Options{})
		defer m.Close()
		use, err := m.NewSession().Use(t.Context(), 2, choose(7, 9))
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := use.Expert(7); ok {
			t.Error("expert 7 is there before it was read")
		}
		if err := use.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, id := range []int{9, 7} {
			ex, ok := use.Expert(id)
			if !ok {
				t.Fatalf("expert %d is not there after Wait", id)
			}
			m.check(ex)
		}
		if _, ok := use.Expert(8); ok {
			t.Error("expert 8 is there, but was not asked for")
		}
		ex, _ := use.Expert(7)
		use.Release()
		use.Release()
		if _, ok := ex.Projection("up"); ok {
			t.Error("a released expert still gives its weights")
		}
		if err := use.Wait(t.Context()); !errors.Is(err, runtime.ErrReleased) {
			t.Errorf("Wait after Release: got %v, want ErrReleased", err)
		}
		if n := m.Stats().Memory.Leases; n != 0 {
			t.Errorf("%d leases left, want 0", n)
		}
	})
}

// A prompt that uses all 16 experts of a layer, with room for 3.
func TestWavesServeMoreThanFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, 3, slow, runtime.Options{Poison: true})
		defer m.Close()
		s := m.NewSession()
		s.Step(trace.Prefill, nil)
		for layer := range small.Layers {
			all := make([]int32, 16)
			for i := range all {
				all[i] = int32(i)
			}
			use, err := s.Use(t.Context(), layer, choose(all...))
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for ex, err := range use.Ready(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				m.check(ex)
				ex.Release()
				ex.Release() // harmless
				n++
			}
			if n != 16 {
				t.Errorf("layer %d: got %d experts, want 16", layer, n)
			}
			use.Release()
		}
		if st := m.Stats().Memory; st.Peak > st.Budget {
			t.Errorf("peak %d bytes, budget %d", st.Peak, st.Budget)
		}
	})
}

func TestKeepingMoreThanFitsIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, 3, slow, runtime.Options{})
		defer m.Close()
		s := m.NewSession()
		use, err := s.Use(t.Context(), 0, choose(1, 2, 3, 4, 5))
		if err != nil {
			t.Fatal(err)
		}
		var last error
		n := 0
		for _, err := range use.Ready(t.Context()) {
			if last = err; err == nil {
				n++
			}
		}
		if n != 3 || !errors.Is(last, runtime.ErrNeedsWaves) {
			t.Errorf("got %d experts, then %v; want 3, then ErrNeedsWaves", n, last)
		}
		if last != nil && !strings.Contains(last.Error(), "release each expert") {
			t.Errorf("the error names no remedy: %v", last)
		}
		use.Release()

		use, err = s.Use(t.Context(), 1, choose(1, 2, 3, 4, 5))
		if err != nil {
			t.Fatal(err)
		}
		if err := use.Wait(t.Context()); !errors.Is(err, runtime.ErrNeedsWaves) {
			t.Errorf("Wait: got %v, want ErrNeedsWaves", err)
		}
		use.Release()
	})
}

// Two sequences that together need more than fits take turns.
func TestUsesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, 3, slow, runtime.Options{})
		defer m.Close()
		first, err := m.NewSession().Use(t.Context(), 0, choose(1, 2))
		if err != nil {
			t.Fatal(err)
		}
		if err := first.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		second, err := m.NewSession().Use(t.Context(), 0, choose(3, 4))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- second.Wait(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("the second use ended (%v) while the first held the memory", err)
		default:
		}
		first.Release()
		if err := <-done; err != nil {
			t.Error(err)
		}
		second.Release()
	})
}

func TestReadErrorReachesItsExpertOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := func(op device.Op) device.Effect {
			if op.Offset == 3*slotBytes { // expert 3 of layer 0
				return device.Effect{Err: io.ErrNoProgress}
			}
			return device.Effect{}
		}
		m := open(t, 8, device.Model{Rule: broken}, runtime.Options{NoSpeculation: true})
		defer m.Close()
		use, err := m.NewSession().Use(t.Context(), 0, choose(3, 9))
		if err != nil {
			t.Fatal(err)
		}
		var good int
		var bad error
		for ex, err := range use.Ready(t.Context()) {
			if err != nil {
				bad = err
				continue
			}
			m.check(ex)
			good++
		}
		if good != 1 || !errors.Is(bad, io.ErrNoProgress) {
			t.Errorf("got %d experts and error %v, want 1 and the drive's error", good, bad)
		}
		for _, word := range []string{"layer 0", "expert 3", "24576"} {
			if bad != nil && !strings.Contains(bad.Error(), word) {
				t.Errorf("the error does not name %q: %v", word, bad)
			}
		}
		use.Release()
	})
}

func TestEndOfContextEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, 8, device.Model{Latency: time.Hour}, runtime.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		s := m.NewSession()
		use, err := s.Use(ctx, 0, choose(2, 3))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := use.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's end", err)
		}
		if waited := time.Since(began); waited != 10*time.Second {
			t.Errorf("waited %v, want 10s", waited)
		}
		use.Release()
		if _, err := s.Use(ctx, 1, choose(2, 3)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Use with an ended context: got %v", err)
		}
		m.Close()
	})
}

func TestCloseWakesWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, 3, device.Model{Latency: time.Hour}, runtime.Options{})
		reading, err := m.NewSession().Use(t.Context(), 0, choose(2, 3))
		if err != nil {
			t.Fatal(err)
		}
		queued, err := m.NewSession().Use(t.Context(), 1, choose(4, 5))
		if err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, 2)
		go func() { errs <- reading.Wait(t.Context()) }()
		go func() { errs <- queued.Wait(t.Context()) }()
		synctest.Wait()
		if err := m.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		for range 2 {
			if err := <-errs; !errors.Is(err, runtime.ErrClosed) {
				t.Errorf("got %v, want ErrClosed", err)
			}
		}
		reading.Release()
		queued.Release()
		if err := m.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		if _, err := m.NewSession().Use(t.Context(), 0, choose(1)); !errors.Is(err, runtime.ErrClosed) {
			t.Errorf("Use after Close: got %v, want ErrClosed", err)
		}
	})
}

// What is leased stays readable after Close.
func TestLeasesOutliveClose(t *testing.T) {
	m := open(t, 8, device.Model{}, runtime.Options{})
	use, err := m.NewSession().Use(t.Context(), 0, choose(2, 3))
	if err != nil {
		t.Fatal(err)
	}
	if err := use.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	ex, ok := use.Expert(3)
	if !ok {
		t.Fatal("the expert is gone")
	}
	m.check(ex)
	use.Release()
}

func TestUseRefusesWrongRouting(t *testing.T) {
	m := open(t, 8, device.Model{}, runtime.Options{})
	defer m.Close()
	s := m.NewSession()
	for _, tt := range []struct {
		layer int
		ids   []int32
		want  string
	}{
		{-1, []int32{0}, "layer -1 is outside the model's 0 to 3"},
		{4, []int32{0}, "layer 4 is outside the model's 0 to 3"},
		{1, []int32{0, 16}, "layer 1 token 0: expert 16 is outside the model's 0 to 15"},
		{1, []int32{-1}, "expert -1 is outside"},
	} {
		if _, err := s.Use(t.Context(), tt.layer, choose(tt.ids...)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("layer %d experts %v: got %v, want %q", tt.layer, tt.ids, err, tt.want)
		}
	}
	use, err := s.Use(t.Context(), 0, nil)
	if err != nil || use.Len() != 0 || use.Wait(t.Context()) != nil {
		t.Errorf("a use of no experts: got %d experts, %v", use.Len(), err)
	}
	use.Release()
}
