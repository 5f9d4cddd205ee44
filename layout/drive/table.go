package drive

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Block sizes and depths that are measured. Smaller blocks than the first are
// no way to read experts.
var (
	blockSizes = []int64{64 << 10, 256 << 10, 1 << 20, 4 << 20}
	depths     = []int{1, 2, 4, 8, 16, 32}
)

const (
	maxBuffers = 256 << 20 // of the reads under way together
	enough     = 0.95      // of the best rate: what is this near is as good
)

// sizesFor are the block sizes for a file: multiples of step that fit into it,
// ascending.
func sizesFor(record, bytes, step int64) []int64 {
	var sizes []int64
	for _, size := range append([]int64{record}, blockSizes...) {
		if size = (size + step - 1) / step * step; size > 0 && size <= bytes {
			sizes = append(sizes, size)
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// buffersFor is what the deepest cell of any of these sizes reads into.
func buffersFor(sizes []int64) int64 {
	var most int64
	for _, size := range sizes {
		for _, depth := range depths {
			if n := size * int64(depth); n <= maxBuffers {
				most = max(most, n)
			}
		}
	}
	return most
}

// place is a cell of the table under measurement.
type place struct {
	block   int64
	depth   int
	samples []sample // one for each round
}

// sample is what one slice of time gave.
type sample struct {
	rate     float64 // bytes a second
	p50, p99 time.Duration
	cpu      float64 // processor seconds a byte
}

// sampleOf sums up the reads of a slice, twice as many as the depth at least.
// The rate counts from the end of as many reads as there are at once: until
// then the drive was filling its queue. So it is neither too low for the first
// latency nor too high for a queue's worth of reads that end together. A stall
// of the machine in that time must not be left out, and is not by the rate of
// all reads from the end of the first: the lower one holds.
func sampleOf(reads []done, block int64, depth int, cpu time.Duration) sample {
	slices.SortFunc(reads, func(x, y done) int { return cmp.Compare(x.end, y.end) })
	n, last := len(reads), reads[len(reads)-1].end
	over := func(count int, from time.Duration) float64 {
		return float64(count) * float64(block) / max(last-from, 1).Seconds()
	}
	s := sample{
		rate: min(over(n-depth, reads[depth-1].end), over(n, reads[0].end)),
		cpu:  cpu.Seconds() / float64(n) / float64(block),
	}
	slices.SortFunc(reads, func(x, y done) int { return cmp.Compare(x.took, y.took) })
	s.p50, s.p99 = quantile(reads, 0.5), quantile(reads, 0.99)
	return s
}

// cell sums up the rounds.
func (p *place) cell() Cell {
	figure := func(of func(sample) float64) []float64 {
		values := make([]float64, len(p.samples))
		for i, s := range p.samples {
			values[i] = of(s)
		}
		slices.Sort(values)
		return values
	}
	rates := figure(func(s sample) float64 { return s.rate })
	return Cell{
		BlockBytes: p.block, Depth: p.depth, BytesPerSecond: median(rates), Rounds: len(p.samples),
		Spread:           rates[len(rates)-1] / rates[0],
		P50Micros:        median(figure(func(s sample) float64 { return micros(s.p50) })),
		P99Micros:        median(figure(func(s sample) float64 { return micros(s.p99) })),
		CPUSecondsPerGiB: median(figure(func(s sample) float64 { return s.cpu * (1 << 30) })),
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// median is that of ascending values.
func median(values []float64) float64 {
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// quantile is the time that a share of the reads, which come by it, did not exceed.
func quantile(sorted []done, share float64) time.Duration {
	return sorted[max(int(math.Ceil(share*float64(len(sorted)))), 1)-1].took
}

// grows reports whether a row, its rates by ascending depth, is worth a further
// depth: not when the last two gained nothing over those before.
func grows(rates []float64) bool {
	n := len(rates)
	return n < 3 || slices.Max(rates[n-2:]) > slices.Max(rates[:n-2])/enough
}

// cellsOf are the cells of the places, by block size, then depth.
func cellsOf(places []*place) []Cell {
	cells := make([]Cell, len(places))
	for i, p := range places {
		cells[i] = p.cell()
	}
	slices.SortFunc(cells, func(x, y Cell) int {
		return cmp.Or(cmp.Compare(x.BlockBytes, y.BlockBytes), cmp.Compare(x.Depth, y.Depth))
	})
	return cells
}
