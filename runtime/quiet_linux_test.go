package runtime_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider/internal/pagecache"
	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/runtime"
	"outrider/trace"
)

// store builds the shipped model's store on this machine's disk.
func store(t *testing.T) string {
	t.Helper()
	cp, err := checkpoint.Read(layout.OS(), modelPath)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := layout.PlanStore(cp, layout.PlanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "model.outrider")
	if _, err := layout.Build(t.Context(), layout.BuildOptions{Dir: dir, Plan: plan, Checkpoint: &cp}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// pass runs one token with a routing of its own through a session.
func pass(t *testing.T, s *runtime.Session, r *rand.Rand, token int32) {
	s.Step(trace.Decode, []int32{token})
	for layer := range modelShape.Layers {
		use, err := s.Use(t.Context(), layer, choose(wander(r, modelShape, modelShape.TopK)...))
		if err != nil {
			t.Fatal(err)
		}
		if err := use.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		use.Release()
	}
}

// written is what the process has written so far: bytes to drives, and bytes and
// number of its write calls.
func written(t *testing.T) (drives, bytes, calls int64) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skipf("this system does not count: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		fmt.Sscanf(line, "write_bytes: %d", &drives)
		fmt.Sscanf(line, "wchar: %d", &bytes)
		fmt.Sscanf(line, "syscw: %d", &calls)
	}
	return drives, bytes, calls
}

// A hundred thousand uses write nothing, and leave nothing of the store in the page
// cache.
func TestUsesWriteNothingAndLeaveNoPages(t *testing.T) {
	passes, least := 100_000/modelShape.Layers, int64(100<<20)
	if underRace {
		passes, least = passes/20, 0
	}
	dir := store(t)
	lane := filepath.Join(dir, "lane-0.bin")
	rt, err := runtime.Open(t.Context(), dir, runtime.Options{BudgetBytes: 10 << 20, FixedBudget: true})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	if lane := rt.Stats().Lanes[0]; !lane.Direct {
		t.Skipf("this disk is read through the page cache: %s", lane.Fallback)
	}
	if err := pagecache.Drop(lane); err != nil {
		t.Fatal(err)
	}
	s, r := rt.NewSession(), rand.New(rand.NewPCG(1, 1))
	defer s.Close()
	drives, bytes, calls := written(t)
	for token := range passes {
		pass(t, s, r, int32(token%1000))
	}
	drivesNow, bytesNow, callsNow := written(t)
	pages, _, err := pagecache.Cached(lane)
	if err != nil {
		t.Fatal(err)
	}
	st := rt.Stats()
	read := st.Reads.DemandBytes + st.Reads.SpeculativeBytes
	if drivesNow != drives {
		t.Errorf("%d bytes were written to drives, want none", drivesNow-drives)
	}
	// Go's scheduler wakes itself by writing 8 bytes into an eventfd.
	if bytesNow-bytes != 8*(callsNow-calls) {
		t.Errorf("%d write calls wrote %d bytes, want wake-ups of 8 only", callsNow-calls, bytesNow-bytes)
	}
	if cached := pages * int64(os.Getpagesize()); cached*100 >= read || read < least {
		t.Errorf("%d bytes read, %d bytes of the store in the page cache: want less than 1 %% of %d bytes or more", read, cached, least)
	}
	t.Logf("%d uses, hits %.3f, %d MiB read by %s, %d pages cached; wrote %d bytes to drives; %d wake-ups", st.Uses, st.HitRate(), read>>20, st.Lanes[0].Engine, pages, drivesNow-drives, callsNow-calls)
}
