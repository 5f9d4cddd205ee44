package gguf_test

import (
	"fmt"
	"runtime"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout/gguf"
)

// manyTensors is a model of small experts, each a tensor of its own, with a
// vocabulary of 100,000 tokens.
func manyTensors(t testing.TB, count int) *memfs.ReadOnly {
	t.Helper()
	w := &gguf.Writer{}
	tokens := make([]string, 100_000)
	for i := range tokens {
		tokens[i] = fmt.Sprintf("token%d", i)
	}
	w.Set("tokenizer.ggml.tokens", tokens)
	data := pattern(1, 34)
	for i := range count {
		w.TensorBytes(fmt.Sprintf("blk.%d.ffn_gate.%d.weight", i/1000, i%1000), gguf.Q8_0, []int64{32, 1}, data)
	}
	return oneFile(t, w)
}

// What opening allocates does not grow with each tensor and token: their number
// costs memory, not allocations.
func TestOpenManyTensors(t *testing.T) {
	const count = 20_000
	fsys := manyTensors(t, count)
	if f := open(t, fsys, "m.gguf"); len(f.Tensors()) != count || f.Tensors()[count-1].Name != "blk.19.ffn_gate.999.weight" {
		t.Fatalf("got %d tensors, want %d", len(f.Tensors()), count)
	}
	if got := testing.AllocsPerRun(1, func() { open(t, fsys, "m.gguf") }); got > 1000 {
		t.Errorf("got %v allocations for %d tensors, want far fewer", got, count)
	}
}

func BenchmarkOpenManyTensors(b *testing.B) {
	fsys := manyTensors(b, 100_000)
	last := open(b, fsys, "m.gguf").Tensors()
	header := last[0].Offset
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f := open(b, fsys, "m.gguf")
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportAllocs()
	for b.Loop() {
		open(b, fsys, "m.gguf")
	}
	b.ReportMetric(float64(header)/1e6, "MB_header")
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB_kept")
	runtime.KeepAlive(f)
}
