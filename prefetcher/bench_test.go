package prefetcher

import (
	"fmt"
	"testing"

	"outrider/experts"
	"outrider/internal/device"
	"outrider/layout"
)

// answers is a waiter for benchmarks: it looks at no byte.
type answers chan experts.Lease

func (a answers) Arrived(_ int, l experts.Lease, err error) {
	if err != nil {
		panic(err)
	}
	a <- l
}

// BenchmarkMiss is a demand of an absent expert from memory, from Demand until
// its lease was released: the cost of the path, a copy and, summed, a checksum.
func BenchmarkMiss(b *testing.B) {
	shape := layout.Shape{Layers: 4, Experts: 16, TopK: 2}
	for _, size := range []int64{4096, 64 << 10, 1 << 20, 4 << 20} {
		for _, sums := range []device.Sums{device.Unsummed, device.Summed} {
			b.Run(fmt.Sprintf("bytes=%d/sums=%v", size, sums == device.Summed), func(b *testing.B) {
				r := newRig(b, rigOptions{bare: true, shape: shape, bytes: size, room: 4, sums: sums})
				defer r.p.Close()
				a := make(answers, 1)
				b.SetBytes(size)
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					r.p.Demand(shape.ID(i%shape.Count()), 0, a)
					(<-a).Release()
					i++
				}
			})
		}
	}
}

// BenchmarkMissesInParallel keeps eight demands under way.
func BenchmarkMissesInParallel(b *testing.B) {
	shape := layout.Shape{Layers: 4, Experts: 64, TopK: 8}
	const depth, size = 8, 64 << 10
	r := newRig(b, rigOptions{bare: true, shape: shape, bytes: size, room: 32, sums: device.Unsummed})
	defer r.p.Close()
	a := make(answers, depth)
	for i := range depth {
		r.p.Demand(shape.ID(i), 0, a)
	}
	b.SetBytes(size)
	b.ReportAllocs()
	i := depth
	for b.Loop() {
		(<-a).Release()
		r.p.Demand(shape.ID(i%shape.Count()), 0, a)
		i++
	}
	for range depth {
		(<-a).Release()
	}
}

// BenchmarkStep is what a runner's thread pays for one layer of forecasts when
// all is resident: Progress and Speculate with 16 candidates.
func BenchmarkStep(b *testing.B) {
	shape := layout.Shape{Layers: 4, Experts: 64, TopK: 8}
	r := newRig(b, rigOptions{bare: true, shape: shape, bytes: 4096})
	defer r.p.Close()
	a := make(answers, 1)
	var list []Candidate
	for e := range 16 {
		r.p.Demand(eid(1, e), 0, a)
		(<-a).Release()
		list = append(list, Candidate{eid(1, e), float32(e) / 16, 0})
	}
	b.ReportAllocs()
	step := int64(0)
	for b.Loop() {
		step++
		for i := range list {
			list[i].NeededBy = step + 1
		}
		r.p.Progress(step)
		r.p.Speculate(step, list)
	}
}
