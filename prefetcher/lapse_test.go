package prefetcher

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"outrider/layout"
)

func TestLapses(t *testing.T) {
	l := NewLapses(layout.Shape{Layers: 2, Experts: 8, TopK: 2})
	begun := func(x int32, neededBy int64) { l.Begun(layout.ExpertID{Index: x}, neededBy) }
	next := func(step int64, off bool) (got []int32) {
		for id, ok := l.Next(step, off); ok; id, ok = l.Next(step, off) {
			got = append(got, id.Index)
		}
		return got
	}
	begun(0, 1)
	begun(1, 1)
	begun(2, 2)
	begun(3, 3)
	if got := next(1, true); got != nil {
		t.Errorf("switched off in step 1: got %v, want none that is due", got)
	}
	if got := next(2, false); got != nil {
		t.Errorf("in step 2: got %v, want none within four cycles", got)
	}
	if got := next(2, true); !slices.Equal(got, []int32{0, 1}) {
		t.Errorf("switched off in step 2: got %v, want 0 and 1", got)
	}
	begun(2, 9) // read again
	if got := next(4+lapseCycles*2, false); !slices.Equal(got, []int32{3}) {
		t.Errorf("four cycles after step 3: got %v, want 3: 2 was read again", got)
	}
	if got := next(100, false); !slices.Equal(got, []int32{2}) || l.head != len(l.queue) {
		t.Errorf("in the end: got %v and %d left, want 2 once and none", got, len(l.queue)-l.head)
	}
}

// TestUnusedReadsLapse: what nobody used is dropped when its time is over, what was
// used stays.
func TestUnusedReadsLapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{model: pages})
		layers := int64(r.p.shape.Layers)
		r.p.Progress(0)
		r.p.Speculate(0, []Candidate{{eid(1, 0), 0.9, 1}, {eid(1, 1), 0.9, 1}})
		time.Sleep(time.Second)
		lease, _ := r.cache.Pin(eid(1, 0))
		lease.Release()
		for step := int64(1); step <= 1+lapseCycles*layers; step++ {
			r.p.Progress(step)
		}
		synctest.Wait()
		if !r.cache.Resident(eid(1, 0)) || !r.cache.Resident(eid(1, 1)) {
			t.Errorf("within four cycles: got one dropped, want both here")
		}
		r.p.Progress(2 + lapseCycles*layers)
		synctest.Wait()
		if !r.cache.Resident(eid(1, 0)) || r.cache.Resident(eid(1, 1)) {
			t.Errorf("after four cycles: got used %v, unused %v in memory, want the used one alone", r.cache.Resident(eid(1, 0)), r.cache.Resident(eid(1, 1)))
		}
		r.close()
	})
}
