package prefetcher

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"outrider/experts"
	"outrider/internal/device"
)

const ms = time.Millisecond

// pages is a drive that takes 1 ms for a page and nothing else.
var pages = device.Model{BytesPerSecond: 4096 * 1000}

func TestDemandDelivers(t *testing.T) {
	tests := []struct {
		name  string
		lanes int
		sums  device.Sums
		block int64
		want  time.Duration
	}{
		{"one lane", 1, device.Summed, 0, 3 * ms},
		{"in place, without sums", 1, device.Unsummed, 0, 3 * ms},
		{"cut into pages", 1, device.Summed, 4096, 3 * ms},
		{"three lanes in parallel", 3, device.Summed, 0, 1 * ms},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, rigOptions{bytes: 10000, lanes: tt.lanes, model: pages, sums: tt.sums, Options: Options{Block: tt.block}})
			synctest.Wait() // all workers are idle
			in, start := &inbox{rig: r}, time.Now()
			r.p.Demand(eid(1, 2), 7, in)
			synctest.Wait()
			time.Sleep(time.Second)
			got := in.letters()
			if len(got) != 1 || got[0].tag != 7 || got[0].err != nil || got[0].lease.ID() != eid(1, 2) {
				t.Fatalf("%s: got %+v, want tag 7 without error", tt.name, got)
			}
			if took := got[0].at.Sub(start); took != tt.want {
				t.Errorf("%s: got it after %v, want %v", tt.name, took, tt.want)
			}
			if s := r.p.Stats(); s.DemandReads != 1 || s.DemandBytes != 12288 || s.InFlight != 0 || s.Flying != 0 {
				t.Errorf("%s: got stats %+v, want one demand read of 12288 bytes, none in flight", tt.name, s)
			}
			r.close()
		})
	}
}

func TestWaitersShareOneRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{model: pages})
		a, b := &inbox{rig: r}, &inbox{rig: r}
		r.p.Demand(eid(0, 0), 1, a)
		r.p.Demand(eid(0, 0), 2, b)
		time.Sleep(ms)
		r.p.Demand(eid(0, 0), 3, b)
		time.Sleep(time.Second)
		if !slices.Equal(a.tags(), []int{1}) || !slices.Equal(b.tags(), []int{2, 3}) {
			t.Errorf("got tags %v and %v, want [1] and [2 3]", a.tags(), b.tags())
		}
		if got := r.reads(); got != 1 {
			t.Errorf("got %d reads, want 1", got)
		}
		if got := r.p.Stats().Joins; got != 2 {
			t.Errorf("got %d joins, want 2", got)
		}
		r.close()
	})
}

func TestResidentAlreadyIsNotReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{model: pages})
		in := &inbox{rig: r}
		for tag := range 3 {
			r.p.Demand(eid(0, 0), tag, in)
			time.Sleep(time.Second)
		}
		if got := in.tags(); !slices.Equal(got, []int{0, 1, 2}) || r.reads() != 1 {
			t.Errorf("got tags %v in %d reads, want [0 1 2] in 1", got, r.reads())
		}
		r.close()
	})
}

func TestDemandPromotesAndCountsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{model: pages, Options: Options{Depth: 1}})
		in, start := &inbox{rig: r}, time.Now()
		r.p.Speculate(0, []Candidate{{eid(1, 0), 0.9, 1}, {eid(1, 1), 0.8, 1}, {eid(1, 2), 0.7, 1}})
		time.Sleep(ms) // the first is half read
		r.p.Demand(eid(1, 2), 2, in)
		r.p.Demand(eid(1, 0), 0, in)
		time.Sleep(time.Second)
		s := r.p.Stats()
		if s.Promoted != 1 || s.Late != 1 || s.Issued != 2 || s.DemandReads != 1 || s.Useful != 0 {
			t.Errorf("got promoted %d late %d issued %d demand reads %d useful %d, want 1 1 2 1 0",
				s.Promoted, s.Late, s.Issued, s.DemandReads, s.Useful)
		}
		if got := in.tags(); !slices.Equal(got, []int{0, 2}) {
			t.Fatalf("got tags %v, want [0 2]", got)
		}
		if took := in.letters()[1].at.Sub(start); took != 4*ms {
			t.Errorf("promoted read: got it after %v, want 4ms, ahead of the other forecast", took)
		}
		r.close()
	})
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{model: pages, Options: Options{Depth: 1}})
		a, b := &inbox{rig: r}, &inbox{rig: r}
		r.p.Demand(eid(0, 0), 0, a) // under way
		synctest.Wait()
		r.p.Demand(eid(0, 1), 1, a) // queued, a only
		r.p.Demand(eid(0, 2), 2, a) // queued, both
		r.p.Demand(eid(0, 2), 3, a)
		r.p.Demand(eid(0, 2), 4, b)
		for i, want := range []int{1, 1, 2, 0} {
			if got := r.p.Cancel(eid(0, i), a); got != want {
				t.Errorf("Cancel of expert %d: got %d, want %d", i, got, want)
			}
		}
		time.Sleep(time.Second)
		if len(a.tags()) != 0 || !slices.Equal(b.tags(), []int{4}) {
			t.Errorf("got tags %v and %v, want none and [4]", a.tags(), b.tags())
		}
		if got := r.reads(); got != 2 {
			t.Errorf("got %d reads, want 2: a queued read that nobody wants is dropped", got)
		}
		if !r.cache.Resident(eid(0, 0)) {
			t.Error("a cancelled read under way: not resident, want resident")
		}
		r.close()
	})
}

func TestNoRoomParksAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{room: 2, model: pages, Options: Options{Depth: 1}})
		in := &inbox{rig: r, keep: true}
		for i := range 5 {
			r.p.Demand(eid(0, i), i, in)
		}
		time.Sleep(time.Second)
		if got := in.tags(); !slices.Equal(got, []int{0, 1}) {
			t.Fatalf("with room for two: got tags %v, want [0 1]", got)
		}
		if s := r.p.Stats(); s.Parked != 3 {
			t.Errorf("got %d parked, want 3", s.Parked)
		}
		if got := r.p.Cancel(eid(0, 3), in); got != 1 {
			t.Errorf("Cancel of a parked demand: got %d, want 1", got)
		}
		in.letters()[0].lease.Release()
		time.Sleep(time.Second)
		if got := in.tags(); !slices.Equal(got, []int{0, 1, 2}) {
			t.Errorf("after one release: got tags %v, want [0 1 2]", got)
		}
		in.drop()
		time.Sleep(time.Second)
		if got := in.tags(); !slices.Equal(got, []int{0, 1, 2, 4}) {
			t.Errorf("after all releases: got tags %v, want [0 1 2 4]", got)
		}
		in.drop()
		r.close()
	})
}

func TestRaisedBudgetServesAllParkedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{room: 2, model: device.Model{Latency: 10 * ms}})
		in := &inbox{rig: r, keep: true}
		for i := range 4 {
			r.p.Demand(eid(0, i), i, in)
		}
		time.Sleep(time.Second)
		start := time.Now()
		r.budget *= 2
		if err := r.cache.SetBudget(r.budget); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		got := in.letters()
		if len(got) != 4 {
			t.Fatalf("got %d answers, want 4", len(got))
		}
		for _, l := range got[2:] {
			if took := l.at.Sub(start); took != 10*ms {
				t.Errorf("tag %d: got it after %v, want 10ms", l.tag, took)
			}
		}
		in.drop()
		r.close()
	})
}

// A forecast that holds the last slot must not keep a parked demand for ever.
func TestSpeculationUnderWayMakesRoomForParkedDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{room: 4, bytes: 4 * 4096, model: pages, Options: Options{Depth: 2, Block: 4096}})
		in := &inbox{rig: r, keep: true}
		r.p.Speculate(0, []Candidate{{eid(1, 0), 0.9, 1}})
		synctest.Wait()
		for i := range 4 {
			r.p.Demand(eid(0, i), i, in)
		}
		time.Sleep(time.Second)
		if got := len(in.tags()); got != 4 {
			t.Errorf("got %d arrivals, want 4", got)
		}
		if s := r.p.Stats(); s.Parkings == 0 {
			t.Error("got no parking, want the test to reach it")
		}
		in.drop()
		r.close()
	})
}

func TestCloseWakesAndJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{room: 3, bytes: 8192, model: device.Model{Latency: 10 * ms}, Options: Options{Depth: 2, Block: 4096}})
		held := &inbox{rig: r, keep: true}
		r.p.Demand(eid(0, 0), 0, held)
		time.Sleep(time.Second)
		in, start := &inbox{rig: r}, time.Now()
		for i := 1; i < 7; i++ { // under way, waiting for a worker, parked
			r.p.Demand(eid(0, i), i, in)
		}
		r.p.Demand(eid(0, 1), 8, in)
		time.Sleep(ms)
		closed := make(chan time.Duration)
		go func() {
			r.p.Close()
			closed <- time.Since(start)
		}()
		synctest.Wait()
		if got := in.letters(); len(got) != 7 {
			t.Errorf("at once after Close: got %d answers, want 7", len(got))
		}
		for _, l := range in.letters() {
			if !errors.Is(l.err, ErrClosed) {
				t.Errorf("tag %d: got %v, want %v", l.tag, l.err, ErrClosed)
			}
		}
		if took := <-closed; took != 10*ms {
			t.Errorf("Close returned after %v, want 10ms, when the blocks being read have ended", took)
		}
		if got := held.letters()[0].lease; !got.Held() {
			t.Error("a lease held over Close is gone, want valid")
		} else {
			r.check(got)
		}
		held.drop()
		r.p.Demand(eid(0, 0), 9, in)
		if got := in.letters(); len(got) != 8 || !errors.Is(got[7].err, ErrClosed) {
			t.Errorf("Demand after Close: got %+v, want one more answer %v", got, ErrClosed)
		}
		r.p.Speculate(0, []Candidate{{eid(1, 0), 1, 1}})
		r.p.Progress(1)
		r.close()
	})
}

func TestDemandOfAStranger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{})
		in := &inbox{rig: r}
		r.p.Demand(eid(4, 0), 0, in)
		if got := in.letters(); len(got) != 1 || !errors.Is(got[0].err, experts.ErrUnknownExpert) {
			t.Errorf("got %+v, want %v at once", got, experts.ErrUnknownExpert)
		}
		r.close()
	})
}

func TestClosedCacheEndsDemands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{model: pages})
		in := &inbox{rig: r}
		r.p.Demand(eid(0, 0), 0, in)
		synctest.Wait()
		r.cache.Close()
		r.p.Demand(eid(0, 1), 1, in)
		time.Sleep(time.Second)
		for _, l := range in.letters() {
			if !errors.Is(l.err, experts.ErrClosed) {
				t.Errorf("tag %d: got %v, want %v", l.tag, l.err, experts.ErrClosed)
			}
		}
		if got := len(in.letters()); got != 2 {
			t.Errorf("got %d answers, want 2", got)
		}
		r.close()
	})
}

func TestNewRefusesBadOptions(t *testing.T) {
	r := newRig(t, rigOptions{})
	defer r.close()
	tests := []struct {
		name string
		opt  Options
		want string
	}{
		{"no source", Options{Cache: r.cache}, "prefetcher: options need a source and a cache"},
		{"no cache", Options{Source: r.src}, "prefetcher: options need a source and a cache"},
		{"depth", Options{Source: r.src, Cache: r.cache, Depth: -1}, "prefetcher: depth -1, want 1 to 1024"},
		{"block", Options{Source: r.src, Cache: r.cache, Block: 5000}, "prefetcher: blocks of 5000 bytes, want a multiple of 4096"},
		{"patience", Options{Source: r.src, Cache: r.cache, Patience: -2}, "prefetcher: patience -2, want 1 or more"},
		{"margin", Options{Source: r.src, Cache: r.cache, Margin: 0.5}, "prefetcher: margin 0.5, want 1 or more"},
	}
	for _, tt := range tests {
		p, err := New(tt.opt)
		if err == nil {
			p.Close()
		}
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
	}
}
