package safetensors_test

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout/safetensors"
)

// bigModel has so many tensors, none of which has a byte: only headers matter here.
func bigModel(tensors int) *safetensors.Writer {
	var w safetensors.Writer
	for i := range tensors {
		w.Tensor(fmt.Sprintf("model.layers.%d.mlp.experts.%d.gate_proj.weight_scale_inv", i/1024, i%1024), "F8_E4M3", []int64{0, 7168}, func(io.Writer) error { return nil })
	}
	return &w
}

// BenchmarkOpen reads one file of 60,000 tensors.
func BenchmarkOpen(b *testing.B) {
	var file bytes.Buffer
	if _, err := bigModel(60_000).WriteTo(&file); err != nil {
		b.Fatal(err)
	}
	fsys := &memfs.ReadOnly{Files: map[string][]byte{"m.safetensors": file.Bytes()}}
	b.SetBytes(int64(file.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := safetensors.Open(fsys, "m.safetensors"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpenSet reads 200 shards with their index; kept-B/tensor is what the
// set goes on to hold of memory.
func BenchmarkOpenSet(b *testing.B) {
	for _, tensors := range []int{60_000, 240_000} {
		b.Run(fmt.Sprintf("shards=200/tensors=%d", tensors), func(b *testing.B) {
			fsys := memfs.New(memfs.Options{})
			w := bigModel(tensors)
			counts := make([]int, 200)
			for i := range counts {
				counts[i] = tensors / len(counts)
			}
			writeShards(b, fsys, "/m", w, counts)
			b.ReportAllocs()
			var before, after runtime.MemStats
			var s *safetensors.Set
			runtime.GC()
			runtime.ReadMemStats(&before)
			for b.Loop() {
				var err error
				if s, err = safetensors.OpenSet(fsys, "/m"); err != nil {
					b.Fatal(err)
				}
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc))/float64(tensors), "kept-B/tensor")
			runtime.KeepAlive(s)
			runtime.KeepAlive(w)
			runtime.KeepAlive(fsys)
		})
	}
}
