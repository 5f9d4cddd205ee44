package prefetcher

import "time"

// rate estimates how fast a lane is, from the reads that it is told of. It has no
// clock of its own. Not safe for concurrent use.
type rate struct {
	first float64 // bytes a second it is taken for before anything was read; 0: not known
	// Decayed by reads: bytes, and the seconds in which at least one was being
	// read.
	bytes, seconds float64

	peak    float64 // bytes a second at best, of late
	latency float64 // seconds that a read takes beside its bytes, when it is quick

	open  int // reads under way that count
	since time.Time
	late  float64 // the 95th percentile of read time over expected time
	fails int     // reads in a row that failed
}

const (
	rateGain = 1.0 / 24 // weight of the latest read
	lateGain = 0.1
	// Bounds of late: the lower keeps jitter from being taken for a stall.
	minLate, firstLate, maxLate = 1.2, 3, 32
	maxFails                    = 8

	peakDecay   = 1.0 / 4096 // a read
	quickGain   = 1.0 / 8    // towards a quicker read
	quickDecay  = 1.0 / 64   // away from it
	leastSecond = 20e-6      // the least latency that is believed
)

func newRate(first float64) rate { return rate{first: first, late: firstLate} }

// begin notes that a read began.
func (r *rate) begin(now time.Time) {
	if r.open == 0 {
		r.since = now
	}
	r.open++
}

// leave notes that a read no longer counts as under way: it ended, or is stuck.
func (r *rate) leave(now time.Time) {
	if r.open > 0 {
		r.seconds += now.Sub(r.since).Seconds()
		r.since = now
		r.open--
	}
}

// read notes what a read brought after its leave, how its time compares with what was
// expected of it, and whether it found the lane idle.
func (r *rate) read(bytes int64, took, expected time.Duration, idle bool) {
	r.fails = 0
	r.bytes = (r.bytes + float64(bytes)) * (1 - rateGain)
	r.seconds *= 1 - rateGain
	r.peak = max(r.peak*(1-peakDecay), r.bytesPerSecond())
	if idle {
		r.answered(bytes, took)
	}
	if expected > 0 {
		r.compare(float64(took) / float64(expected))
	}
}

// answered follows how quick the lane's answers are, by reads that had to wait for no
// other.
func (r *rate) answered(bytes int64, took time.Duration) {
	if r.peak <= 0 {
		return
	}
	beside := max(took.Seconds()-float64(bytes)/r.peak, leastSecond)
	switch {
	case r.latency == 0:
		r.latency = beside
	case beside < r.latency:
		r.latency += (beside - r.latency) * quickGain
	default:
		r.latency += (beside - r.latency) * quickDecay
	}
}

// bulky reports whether a read of so many bytes takes much longer for these than to
// begin with, or is large by any measure.
func (r *rate) bulky(bytes int64) bool {
	return bytes >= smallBlock || float64(bytes) > 4*r.peak*r.latency
}

// compare moves the percentile: up where a read took longer, by as much more than
// down as there are fewer of those.
func (r *rate) compare(ratio float64) {
	if ratio > r.late {
		r.late *= 1 + 0.95*lateGain
	} else {
		r.late *= 1 - 0.05*lateGain
	}
	r.late = min(max(r.late, minLate), maxLate)
}

// failed notes a read that brought nothing.
func (r *rate) failed() { r.fails = min(r.fails+1, maxFails) }

// bytesPerSecond is 0 where nothing is known.
func (r *rate) bytesPerSecond() float64 {
	if r.bytes > 0 && r.seconds > 0 {
		return r.bytes / r.seconds
	}
	return r.first
}

// expect is how long a read takes that makes up backlog bytes with all before it;
// 0 where nothing is known.
func (r *rate) expect(backlog int64) time.Duration {
	speed := r.bytesPerSecond()
	if speed <= 0 {
		return 0
	}
	return time.Duration(min(float64(backlog)/speed, 1e6) * float64(time.Second))
}

// patience is after which time a read that was expected to take so long is
// overdue.
func (r *rate) patience(expected time.Duration) time.Duration {
	return time.Duration(float64(expected) * r.late)
}

// penalty is what the lane's failures make of its times: a lane that answers at
// once, but with errors, must not look fast.
func (r *rate) penalty() float64 { return float64(int64(1) << (2 * r.fails)) }
