package refmodel

import (
	"context"
	"path/filepath"
	"strconv"
	"testing"

	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/runtime"
)

// TestTokensEqual is the top test: three prompts of different domains, 64
// tokens greedy, give the same tokens and the same logits, bit for bit, with all
// experts resident, at a quarter, at the smallest possible budget, from one lane,
// from three with copies, from the checkpoint in place, by io_uring (the default) and pread, at fixed addresses, with and without forecast, speculation
// and look-ahead.
func TestTokensEqual(t *testing.T) {
	path := q8Model(t)
	model, err := Load(nil, path)
	if err != nil {
		t.Fatal(err)
	}
	one := buildStore(t, path, 1, 0)
	three := buildStore(t, path, 3, 4<<20)
	arms := []struct {
		name, path string
		share      float64 // of all experts; 0: the floor
		options    runtime.Options
		lookahead  bool
	}{
		{"one lane, a quarter", one, 0.25, runtime.Options{}, false},
		{"one lane, floor", one, 0, runtime.Options{}, false},
		{"one lane, a quarter, LRU", one, 0.25, runtime.Options{Keep: runtime.KeepLRU}, true},
		{"one lane, a quarter, no speculation", one, 0.25, runtime.Options{NoSpeculation: true}, true},
		{"one lane, a quarter, look-ahead", one, 0.25, runtime.Options{LookaheadLayers: 3}, true},
		{"three lanes, copies, a quarter", three, 0.25, runtime.Options{}, true},
		{"three lanes, floor, buffered", three, 0, runtime.Options{Buffered: true}, false},
		{"one lane, floor, pread", one, 0, runtime.Options{Engine: layout.PreadEngine}, false},
		{"one lane, a quarter, fixed addresses", one, 0.25, runtime.Options{Placement: runtime.PlacementFixed}, true},
		{"in place, a quarter", path, 0.25, runtime.Options{}, true},
		{"in place, floor", path, 0, runtime.Options{}, true},
	}
	prompts, steps := q8Reference(t)[:3], 64
	if underRace || testing.Short() {
		prompts, steps = prompts[:1], 8
	}
	want := make([]Transcript, len(prompts))
	resident := openAt(t, one, 1, runtime.Options{})
	if err := resident.Preload(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, p := range prompts {
		want[i] = transcribe(t, model, resident, p.IDs, steps, Options{})
	}
	if st := resident.Stats(); st.Hits != st.Lookups {
		t.Errorf("resident: %d of %d lookups were hits, want all", st.Hits, st.Lookups)
	}
	for _, arm := range arms {
		arm.options.Poison = true
		rt := openAt(t, arm.path, arm.share, arm.options)
		for i, p := range prompts {
			if d := transcribe(t, model, rt, p.IDs, steps, Options{Lookahead: arm.lookahead}).Difference(want[i]); d != "" {
				t.Errorf("%s, prompt %s: not as resident: %s", arm.name, p.Name, d)
			}
		}
		st := rt.Stats()
		if st.Memory.Peak > st.Memory.Budget || st.Memory.ReleasedTwice > 0 {
			t.Errorf("%s: peak %d of %d bytes, %d leases released twice", arm.name, st.Memory.Peak, st.Memory.Budget, st.Memory.ReleasedTwice)
		}
		t.Logf("%-36s %d prompts x %d tokens equal; hits %.3f, peak %d of %d bytes", arm.name, len(prompts), steps, st.HitRate(), st.Memory.Peak, st.Memory.Budget)
	}
}

// buildStore lays the checkpoint out over some lanes, each in a folder of its own,
// with second copies of records up to so many bytes.
func buildStore(t *testing.T, path string, lanes int, copies int64) string {
	t.Helper()
	fsys := layout.OS()
	cp, err := checkpoint.Read(fsys, path)
	if err != nil {
		t.Fatal(err)
	}
	var specs []layout.LaneSpec
	for i := range lanes {
		spec := layout.LaneSpec{Weight: float64(i + 2)} // so that each gets some of these small records
		if i > 0 {
			spec.Path = filepath.Join(t.TempDir(), "lane-"+strconv.Itoa(i)+".bin")
		}
		specs = append(specs, spec)
	}
	plan, err := layout.PlanStore(cp, layout.PlanOptions{Lanes: specs, Copies: layout.CopiesOptions{Bytes: copies}})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "tinymoe.outrider")
	if _, err := layout.Build(context.Background(), layout.BuildOptions{FS: fsys, Dir: dir, Plan: plan, Checkpoint: &cp}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// openAt opens a model with a share of its experts' memory, or the floor.
func openAt(t *testing.T, path string, share float64, o runtime.Options) *runtime.Runtime {
	t.Helper()
	// What the budgets are measured by depends on how the source lies: ask.
	o.BudgetBytes = 1 << 30
	probe, err := runtime.Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	memory, shape := probe.Stats().Memory, probe.Shape()
	if err := probe.Close(); err != nil {
		t.Fatal(err)
	}
	o.BudgetBytes = memory.Floor
	if share > 0 {
		o.BudgetBytes = int64(share * float64(memory.Cycle) / float64(shape.TopK) * float64(shape.Experts))
	}
	return openStreamed(t, path, o)
}

func transcribe(t *testing.T, m *Model, rt *runtime.Runtime, prompt []int32, steps int, o Options) Transcript {
	t.Helper()
	got, err := streamedGenerator(t, m, rt, o).Transcribe(t.Context(), prompt, steps)
	if err != nil {
		t.Fatal(err)
	}
	return got
}
