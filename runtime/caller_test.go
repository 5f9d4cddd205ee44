package runtime_test

import (
	"math/rand/v2"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"outrider/internal/device"
	"outrider/layout"
	"outrider/runtime"
	"outrider/trace"
)

// goroutine names the goroutine that calls: "goroutine 7".
func goroutine() string {
	var text [64]byte
	name, _, _ := strings.Cut(string(text[:goruntime.Stack(text[:], false)]), " [")
	return name
}

// readers is a source that notes which goroutines locate and read.
type readers struct {
	layout.Source
	mu    sync.Mutex
	calls map[string]int
}

func (r *readers) note() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[goroutine()]++
}

func (r *readers) Locate(id layout.ExpertID, p *layout.Placement) error {
	r.note()
	return r.Source.Locate(id, p)
}

func (r *readers) Lanes() []layout.Lane {
	lanes := slices.Clone(r.Source.Lanes())
	for i := range lanes {
		lanes[i].File = &readFile{File: lanes[i].File, by: r}
	}
	return lanes
}

type readFile struct {
	layout.File
	by *readers
}

func (f *readFile) ReadAt(p []byte, off int64) (int, error) {
	f.by.note()
	return f.File.ReadAt(p, off)
}

// The runner's goroutine never reads and never looks anything up in the source,
// whatever it calls: hits, misses, waves, hints, rollbacks, changes of the budget.
func TestCallersNeverRead(t *testing.T) {
	records, err := device.NewRecords(device.RecordsOptions{Shape: small})
	if err != nil {
		t.Fatal(err)
	}
	source := &readers{Source: records, calls: make(map[string]int)}
	rt, err := runtime.New(source, runtime.Options{BudgetBytes: 6 * slotBytes, FixedBudget: true})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	s, r := rt.NewSession(), rand.New(rand.NewPCG(1, 8))
	for token := range int32(300) {
		s.Step(trace.Decode, []int32{token})
		s.Hint(1, wander(r, small, 2), nil)
		for layer := range small.Layers {
			use, err := s.Use(t.Context(), layer, choose(wander(r, small, 2+int(token)%8)...))
			if err != nil {
				t.Fatal(err)
			}
			for ex, err := range use.Ready(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				ex.Release()
			}
			use.Release()
		}
		if token%10 == 0 {
			if err := s.Rollback(1); err != nil {
				t.Fatal(err)
			}
			if err := rt.SetBudget(int64(4+r.IntN(4)) * slotBytes); err != nil {
				t.Fatal(err)
			}
		}
	}
	source.mu.Lock()
	defer source.mu.Unlock()
	if n := source.calls[goroutine()]; n != 0 {
		t.Errorf("the caller's goroutine read or looked up %d times, want never", n)
	}
	if len(source.calls) == 0 {
		t.Error("nobody read: the test does not test what it says")
	}
}
