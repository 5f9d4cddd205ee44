package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"outrider/internal/device"
	"outrider/runtime"
)

// hung is a drive whose reads never end by themselves.
var hung = device.Model{Latency: 1 << 60}

// Every wait ends with its context, and with Close, at once: also where a drive
// hangs for ever, and also while Close itself must wait for that drive.
func TestNoWaitOutlivesItsEnd(t *testing.T) {
	waits := map[string]func(ctx context.Context, m *model) error{
		"Wait": func(ctx context.Context, m *model) error {
			use, err := m.NewSession().Use(ctx, 0, choose(1, 2))
			if err != nil {
				return err
			}
			defer use.Release()
			return use.Wait(ctx)
		},
		"Ready": func(ctx context.Context, m *model) (last error) {
			use, err := m.NewSession().Use(ctx, 0, choose(1, 2))
			if err != nil {
				return err
			}
			defer use.Release()
			for _, last = range use.Ready(ctx) {
			}
			return last
		},
		"room": func(ctx context.Context, m *model) error {
			first, err := m.NewSession().Use(ctx, 0, choose(1, 2, 3))
			if err != nil {
				return err
			}
			defer first.Release()
			second, err := m.NewSession().Use(ctx, 1, choose(1, 2, 3))
			if err != nil {
				return err
			}
			defer second.Release()
			return second.Wait(ctx)
		},
		"Preload": func(ctx context.Context, m *model) error { return m.Preload(ctx) },
	}
	for name, wait := range waits {
		for _, end := range []string{"context", "close"} {
			t.Run(name+" "+end, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := open(t, 3, hung, runtime.Options{})
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					ended := make(chan error, 1)
					go func() { ended <- wait(ctx, m) }()
					time.Sleep(10 * time.Second) // a lane that is silent for longer is given up
					synctest.Wait()
					if len(ended) != 0 {
						t.Errorf("ended by itself: %v", <-ended)
					}
					began, closed, want := time.Now(), make(chan error, 1), context.Canceled
					if end == "context" {
						cancel()
					} else {
						want = runtime.ErrClosed
						go func() { closed <- m.Close() }()
					}
					synctest.Wait()
					if len(ended) == 0 || time.Since(began) != 0 {
						t.Fatal("still waiting")
					}
					if err := <-ended; !errors.Is(err, want) {
						t.Errorf("got %v, want %v", err, want)
					}
					m.drive.Remove() // lets the reads end that Close waits for
					if end == "context" {
						closed <- m.Close()
					}
					if err := <-closed; err != nil {
						t.Error(err)
					}
					if st := m.Stats().Memory; st.Used != 0 || st.Leases != 0 || st.Fills != 0 {
						t.Errorf("after Close: %d bytes in use, %d leases, %d fills; want none", st.Used, st.Leases, st.Fills)
					}
				})
			})
		}
	}
}

// Runtimes that are closed while others use them leave nothing behind.
func TestCloseRacesWithUse(t *testing.T) {
	rounds := 200
	if underRace {
		rounds = 50
	}
	round := func(n int) {
		rt, err := runtime.Open(t.Context(), modelPath, runtime.Options{BudgetBytes: 4 << 20})
		if err != nil {
			t.Fatal(err)
		}
		var users sync.WaitGroup
		begun := make(chan struct{}, 3)
		for user := range 3 {
			users.Go(func() { useUntilClosed(t, rt, rand.New(rand.NewPCG(uint64(n), uint64(user))), begun) })
		}
		<-begun // at least one is at it
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
		users.Wait()
		if st := rt.Stats().Memory; st.Used != 0 || st.Leases != 0 || st.Fills != 0 {
			t.Fatalf("round %d: %d bytes in use, %d leases, %d fills after Close; want none", n, st.Used, st.Leases, st.Fills)
		}
	}
	for n := range 10 {
		round(n) // what the process keeps for good
	}
	before := residue(t)
	for n := range rounds {
		round(10 + n)
	}
	// A leak is rounds × 4 MiB, and several goroutines a round.
	after := residue(t)
	if grown := after.resident - before.resident; grown > 100<<20 {
		t.Errorf("%d MiB more memory after %d rounds", grown>>20, rounds)
	}
	if grown := after.mapped - before.mapped; grown > 400<<20 {
		t.Errorf("%d MiB more address space after %d rounds", grown>>20, rounds)
	}
	if after.goroutines > before.goroutines {
		t.Errorf("%d goroutines, before %d", after.goroutines, before.goroutines)
	}
	t.Logf("before %+v, after %+v", before, after)
}

// useUntilClosed runs passes until the runtime is closed under it.
func useUntilClosed(t *testing.T, rt *runtime.Runtime, r *rand.Rand, begun chan<- struct{}) {
	s := rt.NewSession()
	defer s.Close()
	for {
		for layer := range modelShape.Layers {
			use, err := s.Use(t.Context(), layer, choose(wander(r, modelShape, modelShape.TopK)...))
			if errors.Is(err, runtime.ErrClosed) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			for _, err := range use.Ready(t.Context()) {
				if err != nil && !errors.Is(err, runtime.ErrClosed) {
					t.Error(err)
				}
			}
			use.Release()
			select {
			case begun <- struct{}{}:
			default:
			}
		}
	}
}

// Close tells what a run came to, with the most memory it used: a process that was
// killed instead lacks the line.
func TestCloseReportsBudgetAndPeak(t *testing.T) {
	var log bytes.Buffer
	m := open(t, 5, device.Model{}, runtime.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	serve(t, m, m.NewSession(), 0, []int32{1, 2, 3, 4})
	if err := m.SetBudget(3 * slotBytes); err != nil {
		t.Fatal(err)
	}
	m.Close()
	m.Close()
	var ends []string
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "runtime closed") {
			ends = append(ends, line)
		}
	}
	if len(ends) != 1 {
		t.Fatalf("got %d lines at the end, want one:\n%s", len(ends), log.String())
	}
	for _, want := range []string{"budget_bytes=24576", "budget_limit_bytes=24576", "peak_bytes=", "lookups=4", "failed_reads=0"} {
		if !strings.Contains(ends[0], want) {
			t.Errorf("%q does not say %s", ends[0], want)
		}
	}
	if strings.Contains(ends[0], "peak_bytes=0") {
		t.Errorf("%q: want the memory used at most", ends[0])
	}
}
