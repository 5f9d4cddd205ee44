package runtime_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"outrider/internal/device"
	"outrider/router"
	"outrider/runtime"
	"outrider/trace"
)

// What only the rolled back sequence wanted is withdrawn; what another wants too
// is read.
func TestRollbackWithdrawsReadsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// One read of an hour at a time: what is wanted next stays queued.
		m := open(t, 16, device.Model{Latency: time.Hour}, runtime.Options{Predictor: &knowing{shape: small}, Depth: 1, Horizon: 3})
		a, b := m.NewSession(), m.NewSession()
		a.Step(trace.Decode, []int32{1})
		synctest.Wait()
		alone := m.Stats().Reads
		b.Step(trace.Decode, []int32{2})
		synctest.Wait()
		both := m.Stats().Reads
		if alone.Queued == 0 || both.Queued <= alone.Queued {
			t.Fatalf("got %d reads ahead queued for one sequence, %d for two: the test needs some of each", alone.Queued, both.Queued)
		}
		if err := b.Rollback(0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		after := m.Stats().Reads
		if after.Queued != alone.Queued || after.Dropped-both.Dropped != int64(both.Queued-alone.Queued) {
			t.Errorf("got %d queued and %d dropped, want the other sequence's %d, the rest dropped",
				after.Queued, after.Dropped-both.Dropped, alone.Queued)
		}
		// It asks again from its next pass on.
		b.Step(trace.Decode, []int32{2})
		synctest.Wait()
		if got := m.Stats().Reads.Queued; got != both.Queued {
			t.Errorf("got %d queued in the next pass, want %d", got, both.Queued)
		}
		m.drive.Remove() // ends the read that Close would wait for
		m.Close()
	})
}

// TestRollbackInTheTrace: rejected tokens of the latest pass are not written, those
// written already come once more, and positions are those of the sequence.
func TestRollbackInTheTrace(t *testing.T) {
	m := open(t, 8, device.Model{}, runtime.Options{})
	defer m.Close()
	s := m.NewSession()
	var got keptTrace
	s.Record(&got)
	pass := func(layers int, tokens ...int32) {
		t.Helper()
		choices := make([]router.Choice, len(tokens))
		for i, token := range tokens {
			choices[i].Experts = []int32{token % 10, 15}
		}
		for layer := range layers {
			use, err := s.Use(t.Context(), layer, choices)
			if err != nil {
				t.Fatal(err)
			}
			use.Release()
		}
	}
	rollback := func(tokens int) {
		t.Helper()
		if err := s.Rollback(tokens); err != nil {
			t.Fatal(err)
		}
	}
	s.Step(trace.Decode, []int32{70, 71, 72})
	pass(4, 70, 71, 72)
	rollback(2) // 71 and 72 were drafted wrong
	s.Step(trace.Decode, []int32{73})
	pass(4, 73)
	s.Step(trace.Decode, []int32{74})
	pass(4, 74)
	rollback(2) // 73 is written, 74 is not
	pass(4, 75) // a pass without Step
	pass(2, 76) // and one that is left in the middle
	rollback(1)
	s.Step(trace.Decode, []int32{77})
	pass(4, 77)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"seq 0 pos 0 decode token 70 [0 15 0 15 0 15 0 15] []",
		"seq 0 pos 1 decode token 73 [3 15 3 15 3 15 3 15] []",
		"seq 0 pos 1 unknown token -1 [5 15 5 15 5 15 5 15] []",
		"seq 0 pos 2 decode token 77 [7 15 7 15 7 15 7 15] []",
	}
	if !slices.Equal(got, want) {
		t.Errorf("recorded\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if tokens := m.Stats().Tokens; tokens != 8 {
		t.Errorf("counted %d tokens, want all 8 that were routed", tokens)
	}
}

func TestRollbackRefusals(t *testing.T) {
	m := open(t, 8, device.Model{}, runtime.Options{Keep: runtime.KeepLRU}) // nothing is forecast
	s := m.NewSession()
	serve(t, m, s, 0, []int32{1, 2})
	for _, tokens := range []int{-1, 2} {
		if err := s.Rollback(tokens); err == nil || !strings.Contains(err.Error(), "want 0 to the 1 of the sequence") {
			t.Errorf("%d tokens of 1: got %v, want an error that names both", tokens, err)
		}
	}
	if err := s.Rollback(1); err != nil {
		t.Errorf("the only token: %v", err)
	}
	if err := s.Rollback(1); err == nil {
		t.Error("rolled back the same token twice")
	}
	s.Close()
	if err := s.Rollback(0); err == nil || !strings.Contains(err.Error(), "session is closed") {
		t.Errorf("a closed session: got %v", err)
	}
	m.Close()
	if err := m.NewSession().Rollback(0); !errors.Is(err, runtime.ErrClosed) {
		t.Errorf("a closed runtime: got %v, want ErrClosed", err)
	}
}

// Passes of several tokens of which some are rejected: the weights are right, and
// what was forecast goes on.
func TestRollbackChangesNoWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, 10, slow, runtime.Options{Poison: true, Predictor: &knowing{shape: small}})
		defer m.Close()
		s := m.NewSession()
		defer s.Close()
		r := rand.New(rand.NewPCG(3, 4))
		for token := range int32(100) {
			drafted := 1 + r.IntN(4)
			s.Step(trace.Decode, []int32{token, token + 1, token + 2, token + 3}[:drafted])
			layers := small.Layers
			if r.IntN(5) == 0 {
				layers = r.IntN(layers) // left in the middle
			}
			for layer := range layers {
				time.Sleep(5 * time.Millisecond)
				serve(t, m, s, layer, routing(token, layer))
			}
			if layers > 0 {
				if err := s.Rollback(r.IntN(2)); err != nil {
					t.Fatal(err)
				}
			}
		}
		st := m.Stats()
		if st.Hits == 0 || st.Reads.Issued == 0 || st.Memory.Leases != 0 {
			t.Errorf("%d hits, %d reads ahead, %d leases left: want some, some and none", st.Hits, st.Reads.Issued, st.Memory.Leases)
		}
	})
}
