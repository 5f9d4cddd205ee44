package router

import (
	"testing"

	"outrider/layout"
	"outrider/trace"
)

// BenchmarkOnline measures one layer of 128 experts, top 8, in steady state.
func BenchmarkOnline(b *testing.B) {
	shape := layout.Shape{Layers: 4, Experts: 128, TopK: 8}
	h, passes := trained(b, shape, 400)
	dst := make([]float32, shape.Experts)
	b.Run("score/near", func(b *testing.B) {
		h.Begin(trace.Decode, []int32{1})
		for l := range 2 {
			h.Observe(l, passes[0].layer(l))
		}
		b.ReportAllocs()
		for b.Loop() {
			h.Score(2, dst)
		}
	})
	b.Run("score/keep", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.Score(1, dst)
		}
	})
	b.Run("observe", func(b *testing.B) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			l := n % shape.Layers
			if l == 0 {
				h.Begin(trace.Decode, passes[n/shape.Layers%len(passes)].tokens)
			}
			h.Observe(l, passes[n/shape.Layers%len(passes)].layer(l))
			n++
		}
	})
}

func trained(tb testing.TB, shape layout.Shape, n int) (History, []pass) {
	tb.Helper()
	p, err := NewOnline(shape, OnlineOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	passes := synthetic(shape, n, 7)
	h := p.NewHistory()
	for _, x := range passes {
		h.Begin(trace.Decode, x.tokens)
		for l := range shape.Layers {
			h.Observe(l, x.layer(l))
		}
	}
	return h, passes
}
