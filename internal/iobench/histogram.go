package iobench

import (
	"math"
	"math/bits"
	"time"
)

// finest is how many buckets an octave has, so that a quantile is at most 0.8 % off.
const (
	finestBits = 6
	finest     = 1 << finestBits
)

// histogram counts durations. It never allocates: what is measured must not see it.
type histogram struct {
	buckets [(64 - finestBits) * finest]int64
	count   int64
}

// bucketOf counts in steps of a nanosecond up to finest, and then so many an octave.
func bucketOf(d time.Duration) int {
	n := uint64(max(d, 0))
	if n < finest {
		return int(n)
	}
	shift := bits.Len64(n) - 1 - finestBits
	return shift<<finestBits + int(n>>shift)
}

// middle is the middle of a bucket.
func middle(bucket int) time.Duration {
	if bucket < 2*finest {
		return time.Duration(bucket)
	}
	shift := bucket>>finestBits - 1
	low := uint64(bucket-shift<<finestBits) << shift
	return time.Duration(min(low+1<<(shift-1), math.MaxInt64))
}

func (h *histogram) add(d time.Duration) {
	h.buckets[bucketOf(d)]++
	h.count++
}

// quantile is what the share q of all does not exceed, 0 if nothing was counted.
func (h *histogram) quantile(q float64) time.Duration {
	seen := int64(0)
	for i, n := range h.buckets {
		if seen += n; n > 0 && float64(seen) >= q*float64(h.count) {
			return middle(i)
		}
	}
	return 0
}
