package prefetcher

import (
	"testing"
	"testing/synctest"
	"time"
)

// A large read for a layer that is over is stopped, unless most of it is there.
func TestReadsForALayerThatIsOverStop(t *testing.T) {
	tests := []struct {
		after time.Duration
		reads int64
		there bool
	}{
		{2*ms + ms/2, 3, false},
		{5*ms + ms/2, 8, true},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, rigOptions{bytes: 8 * 4096, model: pages, Options: Options{Depth: 1, Block: 4096}})
			r.p.Speculate(0, []Candidate{{eid(1, 0), 0.9, 1}})
			time.Sleep(tt.after)
			r.p.Progress(1)
			r.p.Progress(2)
			time.Sleep(time.Second)
			if r.reads() != tt.reads || r.cache.Resident(eid(1, 0)) != tt.there {
				t.Errorf("stopped after %v: got %d reads, resident %v, want %d %v", tt.after, r.reads(), r.cache.Resident(eid(1, 0)), tt.reads, tt.there)
			}
			if s := r.p.Stats(); s.InFlight != 0 || s.Failed != 0 || (s.Cancelled == 1) == tt.there {
				t.Errorf("stopped after %v: got %d in flight, %d failed, %d cancelled", tt.after, s.InFlight, s.Failed, s.Cancelled)
			}
			r.close()
		})
	}
}

// What two forecasts in a row no longer name, as after a sequence was rolled back,
// is stopped; what one leaves out is not.
func TestReadsThatNoForecastNamesStop(t *testing.T) {
	for _, calls := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, rigOptions{bytes: 8 * 4096, model: pages, Options: Options{Depth: 1, Block: 4096}})
			r.p.Speculate(0, []Candidate{{eid(1, 0), 0.9, 4}})
			time.Sleep(2*ms + ms/2)
			for range calls {
				r.p.Speculate(0, nil)
			}
			time.Sleep(time.Second)
			if got := r.cache.Resident(eid(1, 0)); got != (calls == 1) {
				t.Errorf("after %d forecasts without it: got resident %v", calls, got)
			}
			r.close()
		})
	}
}

// Who demands an expert whose read has just been stopped gets it all the same.
func TestDemandOfAStoppedRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{bytes: 8 * 4096, model: pages, Options: Options{Depth: 1, Block: 4096}})
		in := &inbox{rig: r}
		r.p.Speculate(0, []Candidate{{eid(1, 0), 0.9, 1}})
		time.Sleep(2*ms + ms/2)
		r.p.Progress(2) // one block is being read
		r.p.Demand(eid(1, 0), 0, in)
		time.Sleep(time.Second)
		if got := in.letters(); len(got) != 1 || got[0].err != nil {
			t.Errorf("got %+v, want the bytes", got)
		}
		r.close()
	})
}
