package runtime_test

import (
	"testing"

	"outrider/internal/device"
	"outrider/layout"
	"outrider/router"
	"outrider/runtime"
	"outrider/trace"
)

// BenchmarkHits is Use and Release of one layer's four experts, all in memory,
// as a decoding runner calls them: what the runtime costs when it has nothing
// to do. The forecaster works beside it.
func BenchmarkHits(b *testing.B) {
	for _, arm := range []struct {
		name    string
		options runtime.Options
	}{
		{"forecast", runtime.Options{}},
		{"lru", runtime.Options{Keep: runtime.KeepLRU}},
	} {
		b.Run(arm.name, func(b *testing.B) {
			shape := layout.Shape{Layers: 8, Experts: 32, TopK: 4}
			records, err := device.NewRecords(device.RecordsOptions{Shape: shape})
			if err != nil {
				b.Fatal(err)
			}
			arm.options.BudgetBytes = int64(shape.Count()) * slotBytes
			rt, err := runtime.New(records, arm.options)
			if err != nil {
				b.Fatal(err)
			}
			defer rt.Close()
			if err := rt.Preload(b.Context()); err != nil {
				b.Fatal(err)
			}
			s := rt.NewSession()
			defer s.Close()
			choices := []router.Choice{{Experts: []int32{3, 9, 17, 30}, Weights: []float32{0.4, 0.3, 0.2, 0.1}}}
			layer := 0
			pass := func() {
				if layer == 0 {
					s.Step(trace.Decode, nil)
				}
				use, err := s.Use(b.Context(), layer, choices)
				if err != nil {
					b.Fatal(err)
				}
				use.Release()
				layer = (layer + 1) % shape.Layers
			}
			for range 1000 {
				pass() // into the steady state
			}
			b.ReportAllocs()
			for b.Loop() {
				pass()
			}
			b.StopTimer()
			if st := rt.Stats(); st.Hits != st.Lookups {
				b.Fatalf("%d of %d lookups were hits, want all", st.Hits, st.Lookups)
			}
		})
	}
}
