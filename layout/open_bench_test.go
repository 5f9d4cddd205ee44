package layout_test

import (
	"fmt"
	"runtime"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout"
)

// BenchmarkOpenStore opens stores of many records: what a runtime waits for at its
// start. B/op is what passes through memory, held-MB what stays.
func BenchmarkOpenStore(b *testing.B) {
	for _, size := range []struct{ layers, experts int }{{60, 384}, {100, 10_000}} {
		b.Run(fmt.Sprintf("records=%d", size.layers*size.experts), func(b *testing.B) {
			fsys := memfs.New(memfs.Options{})
			cp := uniform(size.layers, size.experts, 64, 64, 64)
			for l := range cp.Layers {
				for i := range cp.Layers[l].Tensors {
					t := &cp.Layers[l].Tensors[i]
					t.Source, t.SourceDims = fmt.Sprintf("model.layers.%d.mlp.experts.{expert}.%s.weight", l, t.Name), []int64{64, 1}
				}
			}
			if err := fsys.WriteFile("/x", make([]byte, cp.Files[0].Size)); err != nil {
				b.Fatal(err)
			}
			build(b, fsys, "/m", cp, layout.PlanOptions{})
			before := heap()
			held, err := layout.OpenStore(fsys, "/m", layout.Buffered)
			if err != nil {
				b.Fatal(err)
			}
			after := heap()
			runtime.KeepAlive(held)
			b.ReportAllocs()
			for b.Loop() {
				s, err := layout.OpenStore(fsys, "/m", layout.Buffered)
				if err != nil {
					b.Fatal(err)
				}
				s.Close()
			}
			b.ReportMetric(float64(after-before)/1e6, "held-MB")
			held.Close()
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
