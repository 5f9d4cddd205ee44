package replay_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"outrider/internal/device"
	"outrider/internal/passes"
	"outrider/internal/replay"
	"outrider/internal/runs"
	"outrider/internal/sim"
	"outrider/internal/testtrace"
	"outrider/runtime"
	"outrider/trace"
)

const (
	recordBytes  = 8192
	layerCompute = time.Millisecond
)

// onDevice plays a run against a runtime over a modelled drive that reads
// top-k records in ratio layer computes, and returns stall over compute and hits.
func onDevice(t *testing.T, tr *trace.Trace, run string, o sim.Options) (stall, hits, recall float64) {
	t.Helper()
	shape := tr.Header.Shape
	each := time.Duration(o.Ratio * float64(layerCompute) / float64(shape.TopK))
	synctest.Test(t, func(t *testing.T) {
		drive := device.New(device.Model{BytesPerSecond: recordBytes / each.Seconds()})
		records, err := device.NewRecords(device.RecordsOptions{Shape: shape, Drives: []*device.Drive{drive}, Sums: device.Unsummed})
		if err != nil {
			t.Fatal(err)
		}
		r, err := runs.Parse(run)
		if err != nil {
			t.Fatal(err)
		}
		schedule := passes.New(tr, passes.Options{MaxTokens: o.MaxTokens, Batch: o.Batch, Chunk: o.Chunk})
		ro, recalled, err := replay.RunOptions(r, tr, schedule)
		if err != nil {
			t.Fatal(err)
		}
		capacity := int64(math.Round(o.CacheShare * float64(shape.Count())))
		ro.BudgetBytes, ro.FixedBudget, ro.Depth = capacity*recordBytes, true, 2
		rt, err := runtime.New(records, ro)
		if err != nil {
			t.Fatal(err)
		}
		defer rt.Close()
		p := replay.New(rt, schedule, replay.Options{Layer: layerCompute})
		defer p.Close()
		if _, err := p.Play(t.Context(), math.MaxInt); err != nil {
			t.Fatal(err)
		}
		s := rt.Stats()
		compute := time.Duration(p.Passes*shape.Layers) * layerCompute
		stall, hits = float64(s.Stall)/float64(compute), s.HitRate()
		if recalled != nil {
			recall = recalled.AtK()
		}
	})
	return stall, hits, recall
}

// TestSimulationAgreesWithRuntime plays the same runs in virtual time by both:
// the simulation, and the runtime itself over a modelled drive.
func TestSimulationAgreesWithRuntime(t *testing.T) {
	if testing.Short() {
		t.Skip("plays two traces 24 times each")
	}
	for _, c := range []struct {
		name   string
		tokens int
	}{
		{"traces/gpt-oss-20b.jsonl.gz", 400},
		{"tinymoe/traces.jsonl.gz", 600},
	} {
		tr := testtrace.Shared(t, c.name, c.tokens)
		for _, o := range []sim.Options{{CacheShare: 0.25, Ratio: 1}, {CacheShare: 0.5, Ratio: 2}, {CacheShare: 0.25, Ratio: 0.5}, {CacheShare: 0.4, Ratio: 1, Batch: 3}} {
			for _, run := range []string{"lru", "lfu", "least-stale", "online", "online+spec", "lru+spec"} {
				t.Run(fmt.Sprintf("%s/%v at %v, batch %d/%s", tr.Header.Model, o.CacheShare, o.Ratio, o.Batch, run), func(t *testing.T) {
					want, err := sim.Run(t.Context(), tr, run, o)
					if err != nil {
						t.Fatal(err)
					}
					stall, hits, recall := onDevice(t, tr, run, o)
					t.Logf("stall %.4f simulated, %.4f replayed; hits %.4f, %.4f; recall %.3f, %.3f", want.StallOverCompute, stall, want.Hits, hits, want.RecallAtK, recall)
					if math.Abs(stall-want.StallOverCompute) > tolerance(run)*max(want.StallOverCompute, 0.01) {
						t.Errorf("stall: replayed %.4f, simulated %.4f: more than %v apart", stall, want.StallOverCompute, tolerance(run))
					}
				})
			}
		}
	}
}

// tolerance is how far simulated and replayed stall may be apart. Under LRU most
// speculative reads find no room that is worth taking, so the governor stands at the
// edge of switching them off, and the runtime differs from itself by a fifth: goroutines
// that are ready at the same instant run in any order.
func tolerance(run string) float64 {
	switch run {
	case "lru+spec":
		return 0.3
	case "online+spec": // the runtime also reads neighbours together, and stops what is stale
		return 0.08
	}
	return 0.05
}
