package learned

import (
	"testing"

	"outrider/layout"
	"outrider/router"
	"outrider/trace"
)

// BenchmarkScore measures one layer of 128 experts, top 8, right after the layer
// before, with a network of the default size and without.
func BenchmarkScore(b *testing.B) {
	shape := layout.Shape{Layers: 4, Experts: 128, TopK: 8}
	tr := generated(b, shape, 400)
	online, err := router.NewOnline(shape, router.OnlineOptions{})
	if err != nil {
		b.Fatal(err)
	}
	p, err := NewOver(drawn(b, Dims{Shape: shape, Embedding: 16, Hidden: 8}, 1), online)
	if err != nil {
		b.Fatal(err)
	}
	h, plain := p.NewHistory(), online.NewHistory()
	for i := range tr.Len() {
		for _, h := range []router.History{h, plain} {
			h.Begin(trace.Decode, tr.Tokens[i:i+1])
			for l := range shape.Layers {
				if i == tr.Len()-1 && l == 2 {
					break
				}
				h.Observe(l, choose(tr, i, l))
			}
		}
	}
	for name, h := range map[string]router.History{"online": plain, "learned": h} {
		b.Run(name, func(b *testing.B) {
			dst := make([]float32, shape.Experts)
			b.ReportAllocs()
			for b.Loop() {
				h.Score(2, dst)
			}
		})
	}
}
