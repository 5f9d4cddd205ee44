package router

import (
	"testing"
	"time"

	"outrider/layout"
	"outrider/trace"
)

// BenchmarkOnline measures one layer of 128 experts, top 8, in steady state.
func BenchmarkOnline(b *testing.B) {
	shape := layout.Shape{Layers: 4, Experts: 128, TopK: 8}
	h, passes := trained(b, shape, 400)
	own := h.(*onlineHistory)
	dst := make([]float32, shape.Experts)
	b.Run("score/near", func(b *testing.B) {
		h.Begin(trace.Decode, []int32{1})
		for l := range 2 {
			h.Observe(l, passes[0].layer(l))
		}
		b.ReportAllocs()
		for b.Loop() {
			own.scratch.filled.ok = false // as after any other layer's
			h.Score(2, dst)
		}
	})
	b.Run("score/keep", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			own.scratch.filled.ok = false
			h.Score(1, dst)
		}
	})
	// A layer's choice is learned from right after it was forecast: that made the
	// features. Where nothing was forecast, learning makes them.
	for name, scored := range map[string]bool{"learn": true, "learn/unscored": false} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			var learned time.Duration
			for b.Loop() {
				l := n % shape.Layers
				if l == 0 {
					h.Begin(trace.Decode, passes[n/shape.Layers%len(passes)].tokens)
				}
				choices := passes[n/shape.Layers%len(passes)].layer(l)
				if scored {
					h.Score(l, dst)
				}
				begin := time.Now()
				h.Observe(l, choices)
				learned += time.Since(begin)
				n++
			}
			b.ReportMetric(float64(learned.Nanoseconds())/float64(n), "ns/op") // of Observe alone
		})
	}
}

// BenchmarkMatrix measures one layer of 48, of 128 experts, top 8, with the
// collection full; pass is a whole pass (48 × observe and what enters by it).
func BenchmarkMatrix(b *testing.B) {
	shape := layout.Shape{Layers: 48, Experts: 128, TopK: 8}
	p, err := NewMatrix(shape, MatrixOptions{})
	if err != nil {
		b.Fatal(err)
	}
	passes := synthetic(shape, 200, 7)
	h := p.NewHistory()
	n := 0
	whole := func() {
		x := passes[n%len(passes)]
		n++
		h.Begin(trace.Decode, x.tokens)
		for l := range shape.Layers {
			h.Observe(l, x.layer(l))
		}
	}
	for p.past.count < p.past.capacity {
		whole()
	}
	dst := make([]float32, shape.Experts)
	b.Run("begin", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.Begin(trace.Decode, nil)
		}
	})
	b.Run("score", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.Score(1, dst)
		}
	})
	b.Run("observe", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.Observe(1, passes[0].layer(1))
		}
	})
	b.Run("pass", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			whole()
		}
	})
}

// BenchmarkOrders measures one layer execution of 128 experts, top 8.
func BenchmarkOrders(b *testing.B) {
	shape := layout.Shape{Layers: 4, Experts: 128, TopK: 8}
	passes := synthetic(shape, 200, 7)
	lru, err := NewLRU(shape)
	if err != nil {
		b.Fatal(err)
	}
	stale, err := NewLeastStale(shape)
	if err != nil {
		b.Fatal(err)
	}
	for name, o := range map[string]Order{"lru": lru, "least-stale": stale} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				o.Routed(n%shape.Layers, passes[n/shape.Layers%len(passes)].layer(n%shape.Layers))
				n++
			}
		})
	}
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
