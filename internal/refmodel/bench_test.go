package refmodel

import (
	"context"
	"testing"
)

// benchmarkFiles are forms of the same model; all experts are in memory.
var benchmarkFiles = []struct{ name, file string }{
	{"F16", "tinymoe-f16.gguf"},
	{"Q8_0", "tinymoe-q8_0.gguf"},
	{"Q4_K_M", "tinymoe-q4_k_m-00001-of-00003.gguf"},
	{"MXFP4", "tinymoe-mxfp4_moe.gguf"},
}

// BenchmarkDecode decodes one token with all experts in memory.
func BenchmarkDecode(b *testing.B) {
	for _, f := range benchmarkFiles {
		b.Run(f.name, func(b *testing.B) {
			model, experts := loadMemory(b, sharedData(b)+"/"+f.file)
			g := experts.generator(b, model, Options{})
			decode(b, g)
		})
	}
}

// decode is the loop: one token a time, a new sequence every 256.
func decode(b *testing.B, g *Generator) {
	token := []int32{0}
	b.ReportAllocs()
	for b.Loop() {
		if g.Len() == 256 {
			if err := g.Reset(); err != nil {
				b.Fatal(err)
			}
		}
		token[0] = int32(g.Len()*37) % int32(g.runner.model.Config.Vocab)
		if err := g.Decode(context.Background(), token...); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "token/s")
}

// BenchmarkPrefill runs a prompt of 128 tokens as one pass.
func BenchmarkPrefill(b *testing.B) {
	for _, f := range benchmarkFiles {
		b.Run(f.name, func(b *testing.B) {
			model, experts := loadMemory(b, sharedData(b)+"/"+f.file)
			g := experts.generator(b, model, Options{})
			prompt := make([]int32, 128)
			for i := range prompt {
				prompt[i] = int32(i*37) % int32(model.Config.Vocab)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := g.Reset(); err != nil {
					b.Fatal(err)
				}
				if err := g.Prefill(context.Background(), prompt); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*len(prompt))/b.Elapsed().Seconds(), "token/s")
		})
	}
}

// BenchmarkExperts computes the TopK experts of one layer for one token: what
// hides a layer's reads.
func BenchmarkExperts(b *testing.B) {
	for _, f := range benchmarkFiles {
		b.Run(f.name, func(b *testing.B) {
			model, experts := loadMemory(b, sharedData(b)+"/"+f.file)
			g := experts.generator(b, model, Options{})
			if err := g.Decode(context.Background(), 7); err != nil {
				b.Fatal(err)
			}
			r := g.runner
			b.ReportAllocs()
			for b.Loop() {
				if err := r.computeExperts(context.Background(), model.Config.Blocks-1); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N), "µs/layer")
		})
	}
}
