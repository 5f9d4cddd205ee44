package iobench

import (
	"context"
	"slices"
	"time"
)

// record is all that was measured of one row.
type record struct {
	name   string
	target *Target // whose raw rate it is compared with; nil: with none
	times  *histogram
	total  Slice
	rates  []float64 // bytes per second of each round
	shares []float64 // of the raw rate, the same
}

func newRecord(name string, t *Target) *record {
	return &record{name: name, target: t, times: &histogram{}}
}

// add takes a slice of a round in which the raw reader reached so many bytes a second.
func (r *record) add(s Slice, raw float64) {
	r.total.add(s)
	if s.Bytes == 0 {
		return
	}
	r.rates = append(r.rates, s.BytesPerSecond())
	if raw > 0 {
		r.shares = append(r.shares, s.BytesPerSecond()/raw)
	}
}

// unmeasured is an operation's time that is not to be noted.
const unmeasured = -1

// operation is done again and again; it says what time is to be noted of it.
type operation func(context.Context) (time.Duration, error)

// limits end a slice: once the time has passed or the operations are done,
// whichever comes first; 0 is no limit.
type limits struct {
	time time.Duration
	ops  int64
}

// measure does the operation until a limit is reached. Bytes are the caller's to fill in.
func (r *record) measure(ctx context.Context, l limits, op operation) (Slice, error) {
	var s Slice
	before := readUsage()
	for {
		took, err := op(ctx)
		if err != nil {
			return s, err
		}
		if took != unmeasured {
			r.times.add(took)
		}
		s.Ops++
		if s.Ops == l.ops || l.time > 0 && time.Since(before.at) >= l.time {
			break
		}
	}
	before.since(&s)
	return s, nil
}

// median is the middle value, the lower of two; 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)/2]
}

// spread is the least and the most, 0 of none.
func spread(values []float64) (least, most float64) {
	if len(values) == 0 {
		return 0, 0
	}
	return slices.Min(values), slices.Max(values)
}
