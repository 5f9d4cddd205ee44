package experts

import (
	"testing"

	"outrider/layout"
)

// BenchmarkTableRecency is a miss-heavy run as a simulation does it: 26 layers
// of 64 experts, a quarter of them in memory.
func BenchmarkTableRecency(b *testing.B) { benchmarkTable(b, nil) }

// BenchmarkTablePolicy is the same with a policy of its own, which gets new
// keys for a layer at every step.
func BenchmarkTablePolicy(b *testing.B) {
	benchmarkTable(b, newFixedPolicy(layout.Shape{Layers: 26, Experts: 64, TopK: 6}))
}

func benchmarkTable(b *testing.B, p *fixedPolicy) {
	shape := layout.Shape{Layers: 26, Experts: 64, TopK: 6}
	o := TableOptions{Shape: shape, BudgetBytes: 26 * 64 / 4, Bytes: one}
	if p != nil {
		o.Policy = p
	}
	table := newTestTable(b, o)
	random := uint64(1)
	step, hits, uses := 0, 0, 0
	b.ReportAllocs()
	for b.Loop() {
		if uses%shape.TopK == 0 {
			step++
			table.Step()
			if p != nil {
				l := step % shape.Layers
				for i := range p.keys[l] {
					random = random*6364136223846793005 + 1442695040888963407
					p.keys[l][i] = float64(random >> 40)
				}
				table.Invalidate(l)
			}
		}
		uses++
		random = random*6364136223846793005 + 1442695040888963407
		u := float64(random>>11) / (1 << 53)
		e := id(step%shape.Layers, int(u*u*float64(shape.Experts)))
		if table.Use(e).Resident() {
			hits++
			continue
		}
		if _, err := table.Begin(e, Demand, 0); err != nil {
			b.Fatal(err)
		}
		table.Commit(e, 0)
	}
	b.ReportMetric(float64(hits)/float64(uses), "hits/op")
}

func BenchmarkPinRelease(b *testing.B) {
	o := Options{Shape: layout.Shape{Layers: 26, Experts: 64, TopK: 6}, BudgetBytes: 26 * 64 * pageBytes, Freed: func() {}}
	for range o.Shape.Layers {
		o.Bytes = append(o.Bytes, pageBytes)
	}
	c := newTestCache(b, o)
	for i := range o.Shape.Count() {
		fill(b, c, o.Shape.ID(i), 0)
	}
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			l, out := c.Pin(o.Shape.ID(i % o.Shape.Count()))
			if !out.Resident() {
				b.Fatal(out)
			}
			_ = l.Release()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				l, _ := c.Pin(o.Shape.ID(i % o.Shape.Count()))
				_ = l.Release()
			}
		})
	})
}

// BenchmarkLayerOfHits is a layer of eight experts that are all in memory, with
// what a step asks the cache besides.
func BenchmarkLayerOfHits(b *testing.B) {
	o := Options{Shape: layout.Shape{Layers: 26, Experts: 64, TopK: 8}, BudgetBytes: 26 * 64 * pageBytes, Freed: func() {}}
	for range o.Shape.Layers {
		o.Bytes = append(o.Bytes, pageBytes)
	}
	c := newTestCache(b, o)
	for i := range o.Shape.Count() {
		fill(b, c, o.Shape.ID(i), 0)
	}
	var leases [8]Lease
	b.ReportAllocs()
	useful := int64(0)
	for i := 0; b.Loop(); i++ {
		c.Step()
		for j := range leases {
			leases[j], _ = c.Pin(id(i%26, (i+5*j)%64))
		}
		useful += c.Outcomes().Useful
		for j := range leases {
			if leases[j].Release() != nil {
				b.Fatal("want all of them in memory")
			}
		}
	}
	if useful != 0 {
		b.Errorf("got %d useful speculative reads, want none", useful)
	}
}

func BenchmarkOutcomes(b *testing.B) {
	c := newTestCache(b, options(4))
	var sum int64
	b.Run("Outcomes", func(b *testing.B) {
		for b.Loop() {
			sum += c.Outcomes().Displaced
		}
	})
	b.Run("Stats", func(b *testing.B) {
		for b.Loop() {
			sum += c.Stats().Displaced
		}
	})
	if sum != 0 {
		b.Errorf("got %d displaced, want none", sum)
	}
}

func BenchmarkEvictFill(b *testing.B) {
	o := Options{Shape: layout.Shape{Layers: 26, Experts: 64, TopK: 6}, BudgetBytes: 26 * 16 * pageBytes}
	for range o.Shape.Layers {
		o.Bytes = append(o.Bytes, pageBytes)
	}
	c := newTestCache(b, o)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		f, err := c.Begin(o.Shape.ID(i%o.Shape.Count()), Demand, 0)
		if err != nil {
			b.Fatal(err)
		}
		if err := f.Commit(nil, nil); err != nil {
			b.Fatal(err)
		}
	}
}
