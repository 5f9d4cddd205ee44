package runtime_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"outrider/internal/device"
	"outrider/router"
	"outrider/runtime"
	"outrider/trace"
)

// Sessions of random routing run at once over a flaky drive. At every step of
// each the budget must hold, and every expert must be itself.
func TestBudgetHoldsAtEveryStep(t *testing.T) {
	for _, o := range []runtime.Options{{}, {NoSpeculation: true}, {Keep: runtime.KeepLRU}} {
		o.Poison = true
		m := open(t, 7, device.Model{Rule: flaky(1)}, o)
		var steps, failed atomic.Int64
		var wg sync.WaitGroup
		for n := range 4 {
			wg.Go(func() { randomSession(m, uint64(n), &steps, &failed) })
		}
		wg.Wait()
		st := m.Stats()
		if st.Memory.Leases != 0 || st.Memory.ReleasedTwice != 0 {
			t.Errorf("%d leases left, %d released twice: want none", st.Memory.Leases, st.Memory.ReleasedTwice)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		t.Logf("%d steps checked, peak %d of %d bytes, %d reads failed for good, %d retried",
			steps.Load(), st.Memory.Peak, st.Memory.Budget, failed.Load(), st.Reads.Retries)
	}
}

// flaky fails, cuts or silences some reads, by the number of the read.
func flaky(seed uint64) device.Rule {
	return func(op device.Op) device.Effect {
		switch r := rand.New(rand.NewPCG(seed, uint64(op.Seq))); r.IntN(60) {
		case 0:
			return device.Effect{Err: device.ErrRemoved}
		case 1:
			return device.Effect{Short: 100}
		case 2:
			return device.Effect{Silent: true}
		case 3:
			return device.Effect{Flip: true}
		}
		return device.Effect{}
	}
}

// randomSession runs passes of one and of many tokens.
func randomSession(m *model, seed uint64, steps, failed *atomic.Int64) {
	r := rand.New(rand.NewPCG(seed, 7))
	s := m.NewSession()
	defer s.Close()
	for pass := range 60 {
		tokens := 1
		if pass%7 == 0 {
			tokens = 6
		}
		s.Step(trace.Decode, nil)
		for layer := range small.Layers {
			choices := make([]router.Choice, tokens)
			for i := range choices {
				choices[i].Experts = wander(r, small, small.TopK)
			}
			use, err := s.Use(m.t.Context(), layer, choices)
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
				m.checkBudget()
				steps.Add(1)
				if r.IntN(2) == 0 || tokens > 1 {
					ex.Release()
				}
			}
			use.Release()
			m.checkBudget()
		}
	}
}

func (m *model) checkBudget() {
	if st := m.Stats().Memory; st.Used > st.Budget || st.Peak > st.Budget {
		m.t.Errorf("memory in use %d, peak %d, budget %d", st.Used, st.Peak, st.Budget)
	}
}

// An expert may arrive at any moment of a Wait: each must end without an error.
func TestWaitMeetsArrivalsAtAnyMoment(t *testing.T) {
	m := open(t, 6, device.Model{}, runtime.Options{NoSpeculation: true})
	defer m.Close()
	s := m.NewSession()
	defer s.Close()
	r := rand.New(rand.NewPCG(5, 5))
	for n := range 20000 {
		use, err := s.Use(t.Context(), n%small.Layers, choose(wander(r, small, 4)...))
		if err != nil {
			t.Fatal(err)
		}
		if err := use.Wait(t.Context()); err != nil {
			t.Fatalf("wait %d: %v", n, err)
		}
		use.Release()
	}
}

// A pass over several sequences brings the union of their experts once.
func TestBatchTakesTheUnion(t *testing.T) {
	m := open(t, 8, device.Model{}, runtime.Options{NoSpeculation: true})
	defer m.Close()
	a, b := m.NewSession(), m.NewSession()
	use, err := m.Use(t.Context(), 0, []runtime.Routed{
		{Session: a, Choices: choose(1, 2)},
		{Session: b, Choices: choose(2, 3)},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer use.Release()
	if err := use.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if use.Len() != 3 || m.drive.Stats().Bytes != 3*slotBytes {
		t.Errorf("%d experts, %d bytes read; want 3 experts once", use.Len(), m.drive.Stats().Bytes)
	}
	if got := m.Stats().Tokens; got != 2 {
		t.Errorf("counted %d tokens, want 2", got)
	}
}

// What a session records is what its routers chose.
func TestSessionRecordsItsTrace(t *testing.T) {
	m := open(t, 8, device.Model{}, runtime.Options{})
	defer m.Close()
	s := m.NewSession()
	var got keptTrace
	s.Record(&got)
	s.Step(trace.Prefill, []int32{70, 71})
	for layer := range small.Layers {
		use, err := s.Use(t.Context(), layer, []router.Choice{
			{Experts: []int32{int32(layer), 9}, Weights: []float32{0.75, 0.25}},
			{Experts: []int32{3}, Weights: []float32{1}},
		})
		if err != nil {
			t.Fatal(err)
		}
		use.Release()
	}
	s.Step(trace.Decode, []int32{72})
	for layer := range small.Layers {
		use, err := s.Use(t.Context(), layer, choose(5, 6))
		if err != nil {
			t.Fatal(err)
		}
		use.Release()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"seq 0 pos 0 prefill token 70 [0 9 1 9 2 9 3 9] [0.75 0.25 0.75 0.25 0.75 0.25 0.75 0.25]",
		"seq 0 pos 1 prefill token 71 [3 -1 3 -1 3 -1 3 -1] [1 0 1 0 1 0 1 0]",
		"seq 0 pos 2 decode token 72 [5 6 5 6 5 6 5 6] []",
	}
	for i := range max(len(want), len(got)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("recorded\n%q\nwant\n%q", got, want)
		}
	}
}
