package prefetcher

import (
	"testing"
	"time"
)

// reads lets a rate see n reads one after another of the given time.
func (r *rate) reads(n int, bytes int64, took, expected time.Duration) {
	now := time.Unix(0, 0)
	for range n {
		r.begin(now)
		now = now.Add(took)
		r.leave(now)
		r.read(bytes, took, expected, true)
	}
}

func TestRateFollowsTheLane(t *testing.T) {
	r := newRate(5e8)
	if got := r.bytesPerSecond(); got != 5e8 {
		t.Errorf("before any read: got %v, want what it was told", got)
	}
	r.reads(100, 1e6, time.Millisecond, 0)
	if got := r.bytesPerSecond(); got < 0.99e9 || got > 1.01e9 {
		t.Errorf("got %v, want 1e9", got)
	}
	r.reads(60, 1e6, 4*time.Millisecond, 0)
	if got := r.bytesPerSecond(); got > 0.3e9 {
		t.Errorf("60 reads after it fell to a quarter: got %v, want nearly 0.25e9", got)
	}
	if got := r.expect(1e6); got < 3*time.Millisecond || got > 4*time.Millisecond {
		t.Errorf("1 MB: got %v expected, want nearly 4ms", got)
	}
}

// A lane's latency is what a read takes that has to wait for no other.
func TestRateLatency(t *testing.T) {
	r := newRate(0)
	now := time.Unix(0, 0)
	for range 500 { // eight at a time, each 100 kB: 1 ms beside 0.8 ms for the bytes of all
		for range 8 {
			r.begin(now)
		}
		for i := range 8 {
			took := time.Millisecond + time.Duration(i+1)*100*time.Microsecond
			r.leave(now.Add(took))
			r.read(1e5, took, 0, i == 0)
		}
		now = now.Add(2 * time.Millisecond)
	}
	if r.latency < 0.7e-3 || r.latency > 1.1e-3 {
		t.Errorf("got %v s, want about a millisecond", r.latency)
	}
}

func TestRateKnowsNothing(t *testing.T) {
	r := newRate(0)
	if r.bytesPerSecond() != 0 || r.expect(1<<20) != 0 || r.penalty() != 1 {
		t.Errorf("got %v %v %v, want 0 0 1", r.bytesPerSecond(), r.expect(1<<20), r.penalty())
	}
}

// The patience is what 95 of 100 reads keep to.
func TestRatePatience(t *testing.T) {
	tests := []struct {
		name     string
		slow     int // of 100 reads take five times as long
		low, top float64
	}{
		{"never", 0, 1.2, 1.2},
		{"one in a hundred", 1, 1.2, 1.5},
		{"a fifth", 20, 4, 7},
	}
	for _, tt := range tests {
		r := newRate(0)
		for i := range 4000 {
			took := time.Millisecond
			if i*37%100 < tt.slow {
				took *= 5
			}
			r.reads(1, 1e6, took, time.Millisecond)
		}
		if got := float64(r.patience(time.Second)) / float64(time.Second); got < tt.low || got > tt.top {
			t.Errorf("%s: got %.2f times the expected, want %v to %v", tt.name, got, tt.low, tt.top)
		}
	}
}

func TestRateFailuresMakeALaneLookSlow(t *testing.T) {
	r := newRate(1e9)
	for range 100 {
		r.failed()
	}
	if got := r.penalty(); got != 1<<(2*maxFails) {
		t.Errorf("got %v, want the most", got)
	}
	r.reads(1, 1e6, time.Millisecond, 0)
	if got := r.penalty(); got != 1 {
		t.Errorf("after a read that went well: got %v, want 1", got)
	}
}

// What is stuck counts neither for the lane's speed nor as being read.
func TestRateForgetsWhatIsStuck(t *testing.T) {
	r := newRate(0)
	r.reads(50, 1e6, time.Millisecond, 0)
	now := time.Unix(100, 0)
	r.begin(now)
	r.leave(now.Add(2 * time.Millisecond)) // overdue
	r.reads(50, 1e6, time.Millisecond, 0)
	if got := r.bytesPerSecond(); got < 0.9e9 {
		t.Errorf("got %v, want nearly 1e9", got)
	}
}

func TestCrowd(t *testing.T) {
	tests := []struct {
		name   string
		beside float64 // time of demands beside forecasts over that of others
		want   func(width int) bool
	}{
		{"a drive that serves side by side", 1, func(w int) bool { return w == 7 }},
		{"one after another", 1.5, func(w int) bool { return w == 1 }},
	}
	for _, tt := range tests {
		c := newCrowd(7)
		for range 400 {
			c.told(false, 1, 1)
			c.told(true, tt.beside, 1)
			c.step()
		}
		if !tt.want(c.width()) || c.open() != (c.width() == 7) {
			t.Errorf("%s: got width %d, open %v", tt.name, c.width(), c.open())
		}
	}
}

// Where every demand finds forecasts beside it, the lanes' speed is the measure.
func TestCrowdWithoutQuietDemands(t *testing.T) {
	for _, ideal := range []float64{1, 2} {
		c := newCrowd(7)
		for range 400 {
			c.told(true, 2, ideal)
			c.step()
		}
		if got := c.width() == 1; got != (ideal == 1) {
			t.Errorf("demands take 2, should take %v: got width %d", ideal, c.width())
		}
	}
}

// Without demands there is nobody to be in the way of.
func TestCrowdLetsGo(t *testing.T) {
	c := newCrowd(7)
	for range 100 {
		c.told(false, 1, 1)
		c.told(true, 3, 1)
	}
	if c.width() != 1 {
		t.Fatalf("got width %d, want 1", c.width())
	}
	for range 100 {
		c.step()
	}
	if !c.open() {
		t.Errorf("after 100 steps without demands: got width %d, want 7", c.width())
	}
}
