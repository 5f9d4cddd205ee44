package prefetcher

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// histogram counts durations in buckets of a quarter of an octave, so that a
// quantile is at most 12.5 % off. It may be used from several goroutines without a
// lock; a snapshot taken meanwhile may miss a few.
type histogram struct {
	buckets [64 * 4]atomic.Int64
}

func bucketOf(d time.Duration) int {
	n := uint64(max(d, 0))
	if n < 4 {
		return int(n)
	}
	octave := bits.Len64(n) - 1
	return octave*4 + int(n>>(octave-2)&3)
}

// bucketMiddle is the middle of a bucket.
func bucketMiddle(i int) time.Duration {
	if i < 8 {
		return time.Duration(min(i, 3)) // 4 to 7 stay empty
	}
	octave, quarter := i/4, i%4
	low := math.Ldexp(1+float64(quarter)/4, octave)
	return time.Duration(min(low+math.Ldexp(0.125, octave), math.MaxInt64/2))
}

func (h *histogram) add(d time.Duration) { h.buckets[bucketOf(d)].Add(1) }

// quantiles is the smallest bucket's middle that the share q of all does not
// exceed, for each q of an ascending list; zeros when nothing was counted.
func (h *histogram) quantiles(qs ...float64) []time.Duration {
	var counts [len(h.buckets)]int64
	total := int64(0)
	for i := range h.buckets {
		counts[i] = h.buckets[i].Load()
		total += counts[i]
	}
	out := make([]time.Duration, len(qs))
	if total == 0 {
		return out
	}
	seen, next := int64(0), 0
	for i, n := range counts {
		seen += n
		for next < len(qs) && float64(seen) >= qs[next]*float64(total) && seen > 0 {
			out[next] = bucketMiddle(i)
			next++
		}
	}
	return out
}
