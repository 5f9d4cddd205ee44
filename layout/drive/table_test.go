package drive

import (
	"slices"
	"testing"
	"time"
)

func TestSizesFor(t *testing.T) {
	for _, tt := range []struct {
		record, bytes, step int64
		want                []int64
	}{
		{0, 1 << 30, 4096, []int64{64 << 10, 256 << 10, 1 << 20, 4 << 20}},
		{0, 1 << 20, 4096, []int64{64 << 10, 256 << 10, 1 << 20}},
		{0, 1000, 4096, nil},
		{52224, 1 << 30, 4096, []int64{53248, 64 << 10, 256 << 10, 1 << 20, 4 << 20}},
		{1 << 20, 1 << 30, 4096, []int64{64 << 10, 256 << 10, 1 << 20, 4 << 20}},
		{1, 1 << 30, 65536, []int64{64 << 10, 256 << 10, 1 << 20, 4 << 20}},
		{64 << 20, 32 << 20, 4096, []int64{64 << 10, 256 << 10, 1 << 20, 4 << 20}},
	} {
		if got := sizesFor(tt.record, tt.bytes, tt.step); !slices.Equal(got, tt.want) {
			t.Errorf("record %d, file %d, step %d: got %v, want %v", tt.record, tt.bytes, tt.step, got, tt.want)
		}
	}
}

func TestBuffersAreBounded(t *testing.T) {
	if got := buffersFor([]int64{64 << 10, 4 << 20}); got != 128<<20 {
		t.Errorf("4 MiB: got %d, want 32 of them", got)
	}
	if got := buffersFor([]int64{64 << 20}); got != maxBuffers {
		t.Errorf("64 MiB: got %d, want %d", got, maxBuffers)
	}
}

func TestGrows(t *testing.T) {
	for _, tt := range []struct {
		rates []float64
		want  bool
	}{
		{nil, true},
		{[]float64{1}, true},
		{[]float64{1, 1}, true},
		{[]float64{1, 1, 1}, false},
		{[]float64{1, 1.04, 1.05}, false},
		{[]float64{1, 1, 1.06}, true},
		{[]float64{1, 2, 2.05}, true},
		{[]float64{1, 2, 2.05, 2.06}, false},
		{[]float64{1, 2, 1.5, 1.5}, false},
	} {
		if got := grows(tt.rates); got != tt.want {
			t.Errorf("%v: got %v, want %v", tt.rates, got, tt.want)
		}
	}
}

func TestQuantileAndMedian(t *testing.T) {
	var hundred []done
	for i := range 100 {
		hundred = append(hundred, done{took: time.Duration(i + 1)})
	}
	if a, b, c := quantile(hundred, 0.5), quantile(hundred, 0.99), quantile(hundred[:1], 0.99); a != 50 || b != 99 || c != 1 {
		t.Errorf("quantiles: got %d, %d and %d, want 50, 99 and 1", a, b, c)
	}
	if a, b := median([]float64{1, 2, 9}), median([]float64{1, 2, 4, 9}); a != 2 || b != 3 {
		t.Errorf("medians: got %v and %v, want 2 and 3", a, b)
	}
}

func TestSampleLeavesOutHowTheQueueFillsButNoStall(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name  string
		reads []done
		depth int
		rate  float64
	}{
		{"one at a time", []done{{2 * s, 2 * s}, {4 * s, 2 * s}, {6 * s, 2 * s}}, 1, 50},
		{"two batches of three, that end together", []done{{2 * s, 2 * s}, {2 * s, 2 * s}, {2 * s, 2 * s}, {4 * s, 2 * s}, {4 * s, 2 * s}, {4 * s, 2 * s}}, 3, 150},
		{"one after another, after a latency of 5 s", []done{{9 * s, 4 * s}, {6 * s, 6 * s}, {7 * s, 7 * s}, {8 * s, 2 * s}}, 2, 100},
		{"a stall of 98 s after the first", []done{{s, s}, {99 * s, 98 * s}, {99 * s, 99 * s}, {99 * s, 99 * s}, {100 * s, s}, {100 * s, s}, {100 * s, s}, {100 * s, s}}, 4, 800.0 / 99},
	} {
		got := sampleOf(tt.reads, 100, tt.depth, time.Duration(len(tt.reads))*s)
		if got.rate != tt.rate || got.cpu != 0.01 {
			t.Errorf("%s: got %v bytes/s and %v s a byte, want %v and 0.01", tt.name, got.rate, got.cpu, tt.rate)
		}
	}
}

func TestCellIsTheMedianOfItsRounds(t *testing.T) {
	p := place{block: 1 << 20, depth: 2}
	for _, s := range []sample{
		{rate: 1 << 30, p50: 10 * time.Microsecond, p99: 90 * time.Microsecond, cpu: 1},
		{rate: 1 << 28, p50: 40 * time.Microsecond, p99: 99 * time.Microsecond, cpu: 3},
		{rate: 1 << 29, p50: 20 * time.Microsecond, p99: 20 * time.Microsecond, cpu: 2},
	} {
		s.cpu /= 1 << 30
		p.samples = append(p.samples, s)
	}
	want := Cell{BlockBytes: 1 << 20, Depth: 2, BytesPerSecond: 1 << 29, P50Micros: 20, P99Micros: 90, CPUSecondsPerGiB: 2, Rounds: 3, Spread: 4}
	if got := p.cell(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestRecommendation(t *testing.T) {
	cells := func(rates map[int64][]float64) []Cell {
		var out []Cell
		for _, size := range blockSizes {
			for i, rate := range rates[size] {
				out = append(out, Cell{BlockBytes: size, Depth: depths[i], BytesPerSecond: rate, P50Micros: 100})
			}
		}
		return out
	}
	for _, tt := range []struct {
		name  string
		rates map[int64][]float64
		block int64
		depth int
	}{
		{"the smallest block that is as good", map[int64][]float64{64 << 10: {1, 2, 3}, 256 << 10: {2, 4, 9.6, 9.7}, 1 << 20: {5, 10}}, 256 << 10, 4},
		{"just not", map[int64][]float64{256 << 10: {2, 4, 9.4}, 1 << 20: {5, 9.4, 10}}, 1 << 20, 4},
		{"the depth is that of its own row", map[int64][]float64{256 << 10: {9.1, 9.2, 9.6}, 4 << 20: {10}}, 256 << 10, 2},
		{"one cell", map[int64][]float64{4 << 20: {7}}, 4 << 20, 1},
	} {
		p := Profile{Cells: cells(tt.rates)}
		p.recommend()
		if p.BlockBytes != tt.block || p.Depth != tt.depth || p.LatencySeconds != 1e-4 {
			t.Errorf("%s: got blocks of %d at depth %d and latency %v, want %d, %d and 1e-4", tt.name, p.BlockBytes, p.Depth, p.LatencySeconds, tt.block, tt.depth)
		}
	}
}
