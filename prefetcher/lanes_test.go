package prefetcher

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"outrider/experts"
	"outrider/internal/device"
	"outrider/layout"
)

// hang makes the reads of a drive that fit take a day.
func hang(fits func(device.Op) bool) device.Rule {
	return func(op device.Op) device.Effect {
		if fits(op) {
			return device.Effect{Delay: 24 * time.Hour}
		}
		return device.Effect{}
	}
}

func always(device.Op) bool { return true }

// twoLanes is a rig with one record cut over two lanes of a page each.
func twoLanes(first, second device.Model, o rigOptions) rigOptions {
	o.models = []device.Model{first, second}
	return o
}

func TestSilentLaneIsAnsweredFromTheCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := pages
		silent.Rule = hang(always)
		r := newRig(t, twoLanes(silent, pages, rigOptions{copied: everyExpert, Options: Options{SilentAfter: time.Second}}))
		in := &inbox{rig: r}
		for e := range 4 {
			r.p.Demand(eid(1, e), e, in)
		}
		time.Sleep(2 * time.Second)
		for _, l := range in.letters() {
			if l.err != nil {
				t.Errorf("expert %d: got %v, want the bytes of the copy", l.tag, l.err)
			}
		}
		if got := len(in.letters()); got != 4 {
			t.Errorf("got %d answers, want 4", got)
		}
		if s := r.p.Stats(); !s.Lanes[0].Silent || s.Lanes[1].Silent {
			t.Errorf("got silent %v %v, want true false", s.Lanes[0].Silent, s.Lanes[1].Silent)
		}
		r.p.Demand(eid(2, 0), 9, in) // what is known to be silent is not asked
		time.Sleep(100 * ms)
		if got := len(in.letters()); got != 5 {
			t.Errorf("of a silent lane: got %d answers after 100 ms, want 5", got)
		}
		r.drives[0].Remove() // ends the reads
		time.Sleep(time.Second)
		if m := r.cache.Stats(); m.Strays != 0 || m.Fills != 0 {
			t.Errorf("in the end: got %d strays and %d fills, want none", m.Strays, m.Fills)
		}
		r.close()
	})
}

func TestSilentLaneWithoutCopiesIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := pages
		silent.Rule = hang(always)
		shape := layout.Shape{Layers: 8, Experts: 8, TopK: 2}
		r := newRig(t, rigOptions{shape: shape, models: []device.Model{silent}, room: 12, Options: Options{Depth: 2, SilentAfter: time.Second}})
		in := &inbox{rig: r}
		for e := range 5 { // two in the drive, three in line
			r.p.Demand(eid(e, 0), e, in)
		}
		time.Sleep(2500 * ms)
		got := in.letters()
		if len(got) != 5 {
			t.Fatalf("got %d answers, want 5", len(got))
		}
		for _, l := range got {
			want := []string{fmt.Sprintf("layer %d expert 0", l.tag), "lane-0.bin", "no answer for 1s", "check the drive"}
			for _, want := range want {
				if !errors.Is(l.err, ErrNoAnswer) || !strings.Contains(l.err.Error(), want) {
					t.Errorf("got %v, want %v with %q", l.err, ErrNoAnswer, want)
				}
			}
		}
		r.p.Demand(eid(7, 0), 9, in)
		time.Sleep(100 * ms)
		if got := in.letters(); len(got) != 6 || !errors.Is(got[5].err, ErrNoAnswer) {
			t.Errorf("of a lane known to be silent: got %+v, want %v at once", got, ErrNoAnswer)
		}
		m := r.cache.Stats()
		if m.Strays != 2 || m.Fills != 0 {
			t.Errorf("got %d strays and %d fills, want the two that the drive may still write to", m.Strays, m.Fills)
		}
		r.drives[0].Remove()
		time.Sleep(time.Second)
		if m := r.cache.Stats(); m.Strays != 0 {
			t.Errorf("when the reads ended: got %d strays, want none", m.Strays)
		}
		r.close()
	})
}

// A lane that comes back after all is used again.
func TestSilentLaneRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := pages
		slow.Rule = func(op device.Op) device.Effect {
			if op.Seq < 2 {
				return device.Effect{Delay: 5 * time.Second}
			}
			return device.Effect{}
		}
		r := newRig(t, rigOptions{models: []device.Model{slow}, Options: Options{Depth: 2, SilentAfter: time.Second}})
		in := &inbox{rig: r}
		r.p.Demand(eid(0, 0), 0, in)
		r.p.Demand(eid(0, 4), 4, in)
		time.Sleep(2 * time.Second)
		for _, l := range in.letters() {
			if !errors.Is(l.err, ErrNoAnswer) {
				t.Errorf("got %v, want %v", l.err, ErrNoAnswer)
			}
		}
		time.Sleep(10 * time.Second)
		r.p.Demand(eid(0, 0), 10, in) // the same expert again
		time.Sleep(time.Second)
		if got := in.letters(); len(got) != 3 || got[2].err != nil {
			t.Errorf("after the recovery: got %+v, want the bytes", got)
		}
		if s := r.p.Stats(); s.Lanes[0].Silent || s.Abandoned != 2 {
			t.Errorf("got silent %v, abandoned %d, want false 2", s.Lanes[0].Silent, s.Abandoned)
		}
		r.close()
	})
}

// While the lane still has the memory of what was given up, nobody else gets it.
func TestBudgetHoldsWithStrays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := pages
		silent.Rule = hang(func(op device.Op) bool { return op.Seq < 2 })
		r := newRig(t, rigOptions{models: []device.Model{silent}, room: 3, Options: Options{Depth: 8, SilentAfter: time.Second}})
		in := &inbox{rig: r}
		r.p.Demand(eid(0, 0), 0, in)
		r.p.Demand(eid(0, 4), 1, in)
		time.Sleep(2 * time.Second)
		for e := range 8 {
			r.p.Demand(eid(2, e), 2+e, in)
			time.Sleep(100 * ms)
			if m := r.cache.Stats(); m.Used > r.budget {
				t.Errorf("got %d bytes used, want at most %d", m.Used, r.budget)
			}
		}
		if got := in.letters(); len(got) != 10 {
			t.Errorf("got %d answers, want 10", len(got))
		}
		r.drives[0].Remove()
		time.Sleep(time.Second)
		r.close()
	})
}

// When all memory is astray, who waits for room gets an answer all the same.
func TestNoRoomButStrays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := pages
		silent.Rule = hang(func(op device.Op) bool { return op.Seq < 2 })
		r := newRig(t, rigOptions{models: []device.Model{silent}, room: 2, Options: Options{SilentAfter: time.Second}})
		in := &inbox{rig: r}
		r.p.Demand(eid(0, 0), 0, in)
		r.p.Demand(eid(1, 0), 1, in)
		time.Sleep(1500 * ms)
		r.p.Demand(eid(2, 0), 2, in)
		time.Sleep(5 * time.Second)
		got := in.letters()
		if len(got) != 3 {
			t.Fatalf("got %d answers, want 3", len(got))
		}
		if want := "its memory is held by reads that a lane has not answered"; !errors.Is(got[2].err, ErrNoAnswer) || !strings.Contains(got[2].err.Error(), want) {
			t.Errorf("got %v, want %v, %q", got[2].err, ErrNoAnswer, want)
		}
		r.drives[0].Remove()
		time.Sleep(time.Second)
		r.close()
	})
}

func TestFailedBlockIsReadFromTheCopy(t *testing.T) {
	tests := []struct {
		name   string
		effect device.Effect
	}{
		{"error", device.Effect{Err: errDrive}},
		{"short", device.Effect{Short: 1}},
		{"silent", device.Effect{Silent: true}},
		{"panic", device.Effect{Panic: true}},
		{"flipped", device.Effect{Flip: true}},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			bad := pages
			bad.Rule = func(device.Op) device.Effect { return tt.effect }
			r := newRig(t, twoLanes(bad, pages, rigOptions{copied: everyExpert}))
			in := &inbox{rig: r}
			for e := range 8 {
				r.p.Demand(eid(1, e), e, in)
				time.Sleep(50 * ms)
			}
			for _, l := range in.letters() {
				if l.err != nil {
					t.Errorf("%s: expert %d: got %v, want the copy's bytes", tt.name, l.tag, l.err)
				}
			}
			r.close()
		})
	}
}

func TestErrorOfBothPlacesNamesBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := pages
		bad.Rule = func(device.Op) device.Effect { return device.Effect{Err: errDrive} }
		r := newRig(t, twoLanes(bad, bad, rigOptions{copied: everyExpert, Options: Options{Depth: 1}}))
		in := &inbox{rig: r}
		r.p.Demand(eid(1, 0), 0, in)
		time.Sleep(time.Second)
		got := in.letters()
		if len(got) != 1 || got[0].err == nil {
			t.Fatalf("got %+v, want an error", got)
		}
		text := got[0].err.Error()
		for _, want := range []string{"lane-0.bin", "lane-1.bin", ".copies", "bad sector", "check both drives"} {
			if !strings.Contains(text, want) {
				t.Errorf("got %q, want it to contain %q", text, want)
			}
		}
		r.close()
	})
}

// A gap is read along where it is small beside what is wanted.
func TestFollows(t *testing.T) {
	at := func(offset, bytes int64) *block { return &block{spot: spot{offset: offset}, bytes: bytes, need: bytes} }
	short := at(64*kib, 64*kib)
	short.need-- // the file ends in it
	tests := []struct {
		name    string
		first   *block
		next    *block
		follows bool
	}{
		{"adjoining", at(0, 64*kib), at(64*kib, 64*kib), true},
		{"a small gap", at(0, 64*kib), at(72*kib, 64*kib), true},
		{"a larger gap", at(0, 64*kib), at(76*kib, 64*kib), false},
		{"a gap that is small beside the block only", at(0, 512*kib), at(532*kib, 64*kib), false},
		{"before it", at(64*kib, 64*kib), at(0, 64*kib), false},
		{"overlapping", at(0, 64*kib), at(32*kib, 64*kib), false},
		{"too much for one request", at(0, 512*kib), at(512*kib, 513*kib), false},
		{"behind the end of the file", short, at(128*kib, 64*kib), false},
		{"on another lane", at(0, 64*kib), &block{spot: spot{lane: 1, offset: 64 * kib}, bytes: 64 * kib, need: 64 * kib}, false},
		{"in the lane's other file", at(0, 64*kib), &block{spot: spot{copies: true, offset: 64 * kib}, bytes: 64 * kib, need: 64 * kib}, false},
	}
	for _, tt := range tests {
		o := &op{}
		o.reset(&lane{}, tt.first, true, time.Time{})
		if got := o.follows(tt.next, mib, 16*kib); got != tt.follows {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.follows)
		}
	}
}

// Neighbours that wait for a lane are read by one request.
func TestNeighboursAreReadTogether(t *testing.T) {
	for _, gap := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			shape := layout.Shape{Layers: 1, Experts: 64, TopK: 2}
			r := newRig(t, rigOptions{shape: shape, bytes: 8192, model: device.Model{Latency: 10 * ms}, Options: Options{Depth: 1}})
			in := &inbox{rig: r}
			r.p.Demand(eid(0, 63), 63, in) // keeps the worker busy
			synctest.Wait()
			for e := range 8 {
				r.p.Demand(eid(0, e*gap), e*gap, in)
			}
			time.Sleep(time.Second)
			if got := in.letters(); len(got) != 9 {
				t.Fatalf("gap %d: got %d answers, want 9", gap, len(got))
			}
			want := int64(9)
			if gap == 1 {
				want = 2
			}
			if s := r.p.Stats(); r.reads() != want || s.Merged != 9-want {
				t.Errorf("gap of %d records: got %d reads, %d merged, want %d %d", gap-1, r.reads(), s.Merged, want, 9-want)
			}
			r.close()
		})
	}
}

// plain hides that a file can read into several buffers.
type plain struct{ layout.File }

func TestFilesThatCannotReadTogetherDoNotHaveTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wrap := func(s layout.Source) layout.Source {
			for i := range s.Lanes() {
				s.Lanes()[i].File = plain{s.Lanes()[i].File}
			}
			return s
		}
		r := newRig(t, rigOptions{wrap: wrap, model: device.Model{Latency: 10 * ms}, Options: Options{Depth: 2}})
		in := &inbox{rig: r}
		for e := range 8 {
			r.p.Demand(eid(0, e), e, in)
		}
		time.Sleep(time.Second)
		for _, l := range in.letters() {
			if l.err != nil {
				t.Errorf("expert %d: got %v", l.tag, l.err)
			}
		}
		r.close()
	})
}

func TestHedgesKeepToTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		models := []device.Model{nvme, nvme}
		for i := range models { // a fifth of all reads is slow
			models[i].Rule = device.Stall(5, 20*ms, uint64(i+1))
		}
		r := newRig(t, wide(256*kib, rigOptions{models: models, copied: everyExpert}))
		for e := range 600 {
			in := &inbox{rig: r}
			r.p.Demand(eid(0, e%32), e, in)
			in.await(1)
			r.empty()
		}
		s := r.p.Stats()
		if share := float64(s.HedgedBytes) / float64(s.DemandBytes); share > hedgeShare+0.01 || s.Hedges == 0 {
			t.Errorf("got %d hedges, %.3f of the bytes, want some, and at most %v", s.Hedges, share, hedgeShare)
		}
		time.Sleep(time.Minute)
		r.close()
	})
}

// At fixed addresses there is no second buffer: reads are waited for.
func TestNoHedgeWithoutASecondBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := nvme
		slow.Rule = device.Script(device.Effect{}, device.Effect{}, device.Effect{Delay: 50 * ms})
		o := wide(256*kib, rigOptions{models: []device.Model{slow, nvme}, copied: everyExpert})
		o.room = 4
		r := newRig(t, o)
		var leases []experts.Lease
		keep := &inbox{rig: r, keep: true}
		for e := range 3 {
			r.p.Demand(eid(0, e), e, keep)
			keep.await(e + 1)
		}
		r.p.Demand(eid(0, 9), 9, keep) // the last slot
		keep.await(4)
		for _, l := range keep.letters() {
			if l.err != nil {
				t.Errorf("expert %d: got %v", l.tag, l.err)
			}
			leases = append(leases, l.lease)
		}
		if s := r.p.Stats(); s.HedgesWon != 0 && len(leases) != 4 {
			t.Errorf("got %d hedges won with no room for one", s.HedgesWon)
		}
		keep.drop()
		r.close()
	})
}
