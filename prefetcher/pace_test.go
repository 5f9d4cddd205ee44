package prefetcher

import (
	"math"
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	p := newPace(2)
	at := func(n int) time.Time { return time.Unix(1, 0).Add(time.Duration(n) * ms) }
	if got := p.advance(1, at(0)); got != nil {
		t.Errorf("first step: got shares %v, want none", got)
	}
	p.lanes[0].begin(at(0))
	p.all.begin(at(0))
	p.lanes[0].begin(at(1)) // overlaps
	p.lanes[0].end(at(2))
	p.lanes[0].end(at(4))
	p.all.end(at(4))
	p.done += 2
	p.lanes[1].begin(at(9)) // goes on over the step
	got := p.advance(2, at(10))
	if len(got) != 2 || got[0] != 0.4 || got[1] != 0.1 {
		t.Errorf("got shares %v, want [0.4 0.1]", got)
	}
	if got := p.ReadSteps(); math.Abs(got-0.2) > 1e-9 {
		t.Errorf("two reads in 4 ms, a step of 10 ms: got %v steps a read, want 0.2", got)
	}
	// Demands took a quarter of the two lanes' time.
	if got := p.FreeSteps(); math.Abs(got-0.2/0.75) > 1e-9 {
		t.Errorf("2 ms a read, 7.5 ms free: got %v steps of free time a read, want %v", got, 0.2/0.75)
	}
	if got := p.advance(2, at(11)); got != nil {
		t.Errorf("the same step again: got %v, want none", got)
	}
	if got := p.advance(3, at(20)); got[1] != 1 {
		t.Errorf("a read over the whole step: got share %v, want 1", got[1])
	}
	before := p.stepTime
	p.advance(4, at(1000000))
	if got := p.stepTime; got > before*1.4 {
		t.Errorf("after a pause: got a step time of %v, want not much more than %v", got, before)
	}
}

// A drive that demands keep busy leaves speculation next to no time, which is not
// the same as an unknown time.
func TestTempoOfABusyDrive(t *testing.T) {
	var tempo Tempo
	if got := tempo.FreeSteps(); got != 0 {
		t.Errorf("nothing measured: got %v, want 0", got)
	}
	for range 50 {
		tempo.Step(10, []float64{1, 1.5}, 10, 5)
	}
	if got := tempo.FreeSteps(); !(got > 1000) || math.IsInf(got, 0) {
		t.Errorf("busy drive: got %v free steps a read, want a large finite number", got)
	}
	if got := tempo.ReadSteps(); math.Abs(got-0.2) > 1e-9 {
		t.Errorf("busy drive: got %v steps a read, want 0.2", got)
	}
	for range 100 {
		tempo.Step(10, []float64{0.5, 0}, 10, 5)
	}
	if got := tempo.FreeSteps(); math.Abs(got-0.2/0.75) > 1e-3 {
		t.Errorf("three quarters free again: got %v, want %v", got, 0.2/0.75)
	}
}

func TestHistogramQuantiles(t *testing.T) {
	var h histogram
	if got := h.quantiles(0.5, 0.99); got[0] != 0 || got[1] != 0 {
		t.Errorf("empty: got %v, want zeros", got)
	}
	for i := 1; i <= 1000; i++ {
		h.add(time.Duration(i) * time.Microsecond)
	}
	for i, got := range h.quantiles(0.5, 0.99, 1) {
		want := []time.Duration{500, 990, 1000}[i] * time.Microsecond
		if d := math.Abs(float64(got-want)) / float64(want); d > 0.13 {
			t.Errorf("quantile %d: got %v, want %v within 12.5 %%", i, got, want)
		}
	}
	for _, d := range []time.Duration{-1, 0, 1, 3, 4, 7, math.MaxInt64} {
		var one histogram
		one.add(d)
		got := one.quantiles(0.5)[0]
		if d = max(d, 0); math.Abs(float64(got-d)) > 0.5*float64(d)+1 {
			t.Errorf("%d alone: got %d", d, got)
		}
	}
}

func TestPaceReach(t *testing.T) {
	start := time.Unix(0, 0)
	for _, c := range []struct {
		step, read time.Duration
		want       int
	}{
		{10 * time.Millisecond, time.Millisecond, 1},
		{10 * time.Millisecond, 10 * time.Millisecond, 1},
		{10 * time.Millisecond, 25 * time.Millisecond, 3},
		{time.Millisecond, time.Hour, maxReach},
	} {
		p := newPace(1)
		if got := p.Reach(); got != 1 {
			t.Errorf("at start: got a reach of %d, want 1", got)
		}
		for i := range int64(50) {
			p.advance(i+1, start.Add(time.Duration(i)*c.step))
			p.ended(c.read)
		}
		if got := p.Reach(); got != c.want {
			t.Errorf("steps of %v, reads of %v: got a reach of %d, want %d", c.step, c.read, got, c.want)
		}
	}
}
