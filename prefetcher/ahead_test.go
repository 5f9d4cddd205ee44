package prefetcher

import (
	"testing"
	"testing/synctest"
	"time"

	"outrider/experts"
	"outrider/internal/device"
	"outrider/layout"
)

func TestSpeculativeReadBecomesUseful(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{model: pages})
		r.p.Speculate(0, []Candidate{{eid(1, 0), 0.9, 1}, {eid(1, 1), 0.9, 1}})
		time.Sleep(time.Second)
		lease, out := r.cache.Pin(eid(1, 0))
		if out != experts.HitUseful {
			t.Fatalf("Pin: got %v, want %v", out, experts.HitUseful)
		}
		r.check(lease)
		lease.Release()
		if s := r.p.Stats(); s.Issued != 2 || s.Useful != 1 || s.Late != 0 || s.DemandReads != 0 {
			t.Errorf("got issued %d useful %d late %d demand reads %d, want 2 1 0 0", s.Issued, s.Useful, s.Late, s.DemandReads)
		}
		r.close()
	})
}

func TestSpeculateReplacesWhatHasNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{model: pages, Options: Options{Depth: 1}})
		r.p.Speculate(0, []Candidate{{eid(1, 0), 0.9, 1}, {eid(1, 1), 0.8, 1}, {eid(1, 2), 0.7, 1}})
		synctest.Wait()
		r.p.Speculate(0, []Candidate{{eid(1, 0), 0.9, 1}, {eid(1, 2), 0.7, 1}, {eid(9, 9), 1, 1}})
		if s := r.p.Stats(); s.Queued != 1 || s.Dropped != 1 {
			t.Errorf("got queued %d dropped %d, want 1 1", s.Queued, s.Dropped)
		}
		time.Sleep(time.Second)
		for i, want := range []bool{true, false, true} {
			if got := r.cache.Resident(eid(1, i)); got != want {
				t.Errorf("expert %d: got resident %v, want %v", i, got, want)
			}
		}
		r.close()
	})
}

func TestProgressDropsWhatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{model: pages, Options: Options{Depth: 1}})
		r.p.Speculate(0, []Candidate{{eid(1, 0), 0.9, 1}, {eid(1, 1), 0.9, 1}, {eid(2, 0), 0.9, 9}})
		synctest.Wait()
		r.p.Progress(1)
		if s := r.p.Stats(); s.Dropped != 1 || s.Queued != 1 || s.Flying != 1 {
			t.Errorf("got dropped %d queued %d flying %d, want 1 1 1", s.Dropped, s.Queued, s.Flying)
		}
		time.Sleep(time.Second)
		if got := r.reads(); got != 2 {
			t.Errorf("got %d reads, want 2: the one under way and the later one", got)
		}
		r.close()
	})
}

func TestDemandWaitsForOneBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{bytes: 16 * 4096, model: pages, Options: Options{Depth: 1, Block: 4096}})
		in, start := &inbox{rig: r}, time.Now()
		r.p.Speculate(0, []Candidate{{eid(1, 0), 0.9, 1}})
		time.Sleep(ms / 2)
		r.p.Demand(eid(0, 0), 0, in)
		time.Sleep(17*ms - ms/2 + 1)
		if got := in.letters(); len(got) != 1 || got[0].at.Sub(start) != 17*ms {
			t.Fatalf("got %+v, want one arrival after 17ms: one block of the forecast, 16 of its own", got)
		}
		if r.cache.Resident(eid(1, 0)) {
			t.Error("the forecast came before the demand")
		}
		time.Sleep(15 * ms)
		if !r.cache.Resident(eid(1, 0)) {
			t.Error("the forecast did not go on after the demand")
		}
		r.close()
	})
}

// A speculative read under way gets a block in for each Patience demand blocks.
func TestSpeculativeReadUnderWayIsNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shape := layout.Shape{Layers: 2, Experts: 64, TopK: 2}
		r := newRig(t, rigOptions{shape: shape, bytes: 4 * 4096, model: pages,
			Options: Options{Depth: 1, Block: 4096, Patience: 8}})
		in := &inbox{rig: r}
		r.p.Speculate(0, []Candidate{{eid(1, 0), 0.9, 1}})
		synctest.Wait()
		for i := range 64 {
			r.p.Demand(eid(0, i), i, in)
		}
		// Its blocks are the 1st, 10th, 19th and 28th read.
		time.Sleep(28*ms + 1)
		if !r.cache.Resident(eid(1, 0)) {
			t.Error("after 24 demand blocks and 4 of its own: not resident, want resident")
		}
		time.Sleep(time.Second)
		r.close()
	})
}

func TestNoSpeculationWhileDemandsAreQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{model: pages, Options: Options{Depth: 2}})
		in := &inbox{rig: r}
		for i := range 4 {
			r.p.Demand(eid(i, 0), i, in) // far apart
		}
		r.p.Speculate(0, []Candidate{{eid(1, 4), 0.9, 1}})
		time.Sleep(3 * ms)
		if s := r.p.Stats(); s.Issued != 0 || s.Queued != 1 {
			t.Errorf("with demands queued: got issued %d queued %d, want 0 1", s.Issued, s.Queued)
		}
		time.Sleep(time.Second)
		if !r.cache.Resident(eid(1, 4)) {
			t.Error("after the demands: the forecast is not resident")
		}
		r.close()
	})
}

func TestWidthLeavesAWorkerToDemands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{model: device.Model{Latency: 10 * ms}, Options: Options{Depth: 4}})
		var list []Candidate
		for i := range 8 {
			list = append(list, Candidate{eid(1, i), 1, 1})
		}
		r.p.Speculate(0, list)
		synctest.Wait()
		if s := r.p.Stats(); s.Flying != 3 || s.Width[0] != 3 {
			t.Errorf("got flying %d width %v, want 3 [3]", s.Flying, s.Width)
		}
		in, start := &inbox{rig: r}, time.Now()
		r.p.Demand(eid(0, 0), 0, in)
		time.Sleep(time.Second)
		if got := in.letters(); len(got) != 1 || got[0].at.Sub(start) != 10*ms {
			t.Errorf("got %+v, want one arrival after 10ms", got)
		}
		r.close()
	})
}

func TestNoSpeculationOption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{Options: Options{NoSpeculation: true}})
		r.p.Speculate(0, []Candidate{{eid(1, 0), 1, 1}})
		time.Sleep(time.Second)
		if s := r.p.Stats(); r.reads() != 0 || s.Mode != SpeculationOff || s.Width[0] != 0 {
			t.Errorf("got %d reads, mode %v, width %v, want 0 off [0]", r.reads(), s.Mode, s.Width)
		}
		r.close()
	})
}

// Each lane leaves a worker to demands, and no slot is taken for a read that no worker
// is left for.
func TestEachLaneLeavesAWorkerToDemands(t *testing.T) {
	for _, pages := range []int64{1, 3, 6} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, rigOptions{lanes: 3, bytes: pages * 4096, model: device.Model{Latency: 10 * ms},
				Options: Options{Depth: 4, Block: 4096}})
			var list []Candidate
			for i := range 16 {
				list = append(list, Candidate{eid(1+i/8, i%8), 1, 1})
			}
			r.p.Speculate(0, list)
			time.Sleep(ms / 2)
			flying := 0
			for i, l := range r.p.Stats().Lanes {
				flying += l.Flying
				if l.Flying > 3 {
					t.Errorf("%d pages, lane %d: got flying %d, want at most 3 of 4 workers", pages, i, l.Flying)
				}
			}
			if fills := r.cache.Stats().Fills; fills > 9 {
				t.Errorf("%d pages: got %d slots taken, want at most what 9 workers read", pages, fills)
			}
			if pages > 1 && flying != 9 {
				t.Errorf("%d pages: got flying %d, want 9 of 12 workers", pages, flying)
			}
			r.close()
		})
	}
}

func TestNoSpeculationWhileADemandIsParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{room: 2, model: pages, Options: Options{Depth: 1}})
		in := &inbox{rig: r, keep: true}
		for i := range 3 {
			r.p.Demand(eid(0, i), i, in)
		}
		time.Sleep(time.Second)
		r.p.Speculate(0, []Candidate{{eid(1, 0), 1, 1}})
		time.Sleep(time.Second)
		if s := r.p.Stats(); s.Parked != 1 || s.Queued != 1 || s.Issued != 0 || s.Dropped != 0 {
			t.Errorf("got parked %d queued %d issued %d dropped %d, want 1 1 0 0", s.Parked, s.Queued, s.Issued, s.Dropped)
		}
		r.p.Cancel(eid(0, 2), in)
		synctest.Wait()
		if s := r.p.Stats(); s.Queued != 0 || s.Dropped != 1 {
			t.Errorf("after Cancel: got queued %d dropped %d, want 0 1: tried, and no room", s.Queued, s.Dropped)
		}
		in.drop()
		r.close()
	})
}

// A promoted read goes on in all workers, whatever the width was.
func TestPromotedReadUsesAllWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{bytes: 4 * 4096, model: device.Model{Latency: 10 * ms},
			Options: Options{Depth: 4, Block: 4096, Governor: GovernorOptions{MaxWidth: 1}}})
		in, start := &inbox{rig: r}, time.Now()
		synctest.Wait()
		r.p.Speculate(0, []Candidate{{eid(1, 0), 0.9, 1}})
		time.Sleep(5 * ms)
		r.p.Demand(eid(1, 0), 0, in)
		time.Sleep(time.Second)
		if got := in.letters(); len(got) != 1 || got[0].at.Sub(start) != 15*ms {
			t.Errorf("got %+v, want one arrival after 15ms", got)
		}
		r.close()
	})
}

// Speculation has only the time that demands leave: with 1 ms of it a step and reads
// of 2 ms, one read is half done by the next step, and a second one not at all.
func TestForecastsBeyondTheFreeTimeAreRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{model: pages, Options: Options{Depth: 1}})
		in := &inbox{rig: r}
		r.p.mu.Lock()
		r.p.mu.pace.stepTime, r.p.mu.pace.freeTime, r.p.mu.pace.readTime = 0.008, 0.001, 0.002
		r.p.mu.Unlock()
		for i := range 6 {
			r.p.Demand(eid(0, i), i, in)
		}
		synctest.Wait()
		r.p.Speculate(0, []Candidate{{eid(1, 0), 1, 1}, {eid(1, 1), 1, 1}, {eid(2, 0), 1, 4}})
		if s := r.p.Stats(); s.Rejected != 1 || s.Queued != 2 {
			t.Errorf("got rejected %d queued %d, want 1 2: the second for the next step is too late", s.Rejected, s.Queued)
		}
		time.Sleep(time.Second)
		r.close()
	})
}

// When the governor switches off, what has a slot is finished and what is queued
// is dropped.
func TestSwitchingOffEndsWhatBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{bytes: 4 * 4096, model: pages, Options: Options{Depth: 1, Block: 4096}})
		r.p.Speculate(0, []Candidate{{eid(1, 0), 0.9, 5}, {eid(1, 1), 0.8, 5}})
		synctest.Wait()
		r.p.mu.Lock()
		r.p.mu.governor.wake = 1 << 40
		r.p.mu.governor.enter(SpeculationOff)
		r.p.mu.Unlock()
		r.p.Progress(1)
		if s := r.p.Stats(); s.Queued != 0 || s.Dropped != 1 || s.InFlight != 1 || s.Mode != SpeculationOff {
			t.Errorf("got queued %d dropped %d in flight %d mode %v, want 0 1 1 off", s.Queued, s.Dropped, s.InFlight, s.Mode)
		}
		time.Sleep(time.Second)
		if !r.cache.Resident(eid(1, 0)) || r.cache.Resident(eid(1, 1)) {
			t.Errorf("got resident %v %v, want true false", r.cache.Resident(eid(1, 0)), r.cache.Resident(eid(1, 1)))
		}
		r.close()
	})
}

func TestDemandThatWaitsNarrowsSpeculation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{model: device.Model{Latency: 10 * ms}, Options: Options{Depth: 3}})
		in := &inbox{rig: r}
		r.p.Speculate(0, []Candidate{{eid(1, 0), 0.9, 1}, {eid(1, 4), 0.9, 1}})
		synctest.Wait()
		r.p.Demand(eid(0, 0), 0, in)
		synctest.Wait()
		if got := r.p.Stats().Width[0]; got != 2 {
			t.Errorf("a worker was free: got width %d, want 2", got)
		}
		r.p.Demand(eid(0, 1), 1, in)
		if got := r.p.Stats().Width[0]; got != 1 {
			t.Errorf("no worker was free: got width %d, want 1", got)
		}
		time.Sleep(time.Second)
		r.close()
	})
}

// nosy is a source that calls back when it is asked for a place.
type nosy struct {
	layout.Source
	hook *func(layout.ExpertID)
}

func (s nosy) Locate(id layout.ExpertID, p *layout.Placement) error {
	(*s.hook)(id)
	return s.Source.Locate(id, p)
}

// A forecast for which no victim is worth it is demanded while it is being opened:
// the demand gets the room that the forecast did not.
func TestPromotedWhileOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook := func(layout.ExpertID) {}
		r := newRig(t, rigOptions{room: 2, model: pages, wrap: func(s layout.Source) layout.Source { return nosy{s, &hook} }})
		in := &inbox{rig: r}
		r.p.Demand(eid(0, 0), 0, in)
		r.p.Demand(eid(0, 1), 1, in)
		time.Sleep(time.Second) // both resident, and protected in this step
		synctest.Wait()
		asked := false
		hook = func(id layout.ExpertID) {
			if !asked {
				asked = true
				r.p.Demand(id, 2, in)
			}
		}
		r.p.Speculate(0, []Candidate{{eid(1, 0), 0.9, 1}})
		time.Sleep(time.Second)
		if got := in.tags(); len(got) != 3 || got[2] != 2 {
			t.Errorf("got tags %v, want 2 as the third", got)
		}
		if s := r.p.Stats(); s.Issued != 0 || s.Late != 0 || s.DemandReads != 3 {
			t.Errorf("got issued %d late %d demand reads %d, want 0 0 3", s.Issued, s.Late, s.DemandReads)
		}
		r.close()
	})
}
