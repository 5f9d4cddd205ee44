package safetensors_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout/safetensors"
)

func bigHeader(b *testing.B, tensors int) []byte {
	var w safetensors.Writer
	for i := range tensors {
		w.Tensor(fmt.Sprintf("model.layers.%d.mlp.experts.%d.gate_proj.weight_scale_inv", i/1024, i%1024), "F8_E4M3", []int64{0, 7168}, func(io.Writer) error { return nil })
	}
	var buf bytes.Buffer
	if _, err := w.WriteTo(&buf); err != nil {
		b.Fatal(err)
	}
	return buf.Bytes()
}

// BenchmarkOpen: 60,000 tensors in one file.
func BenchmarkOpen(b *testing.B) {
	data := bigHeader(b, 60_000)
	fsys := &memfs.ReadOnly{Files: map[string][]byte{"m.safetensors": data}}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := safetensors.Open(fsys, "m.safetensors"); err != nil {
			b.Fatal(err)
		}
	}
}
