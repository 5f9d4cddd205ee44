package prefetcher

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"outrider/internal/device"
	"outrider/layout"
)

// counted counts what the readers of a file are asked, and by how many.
type counted struct {
	layout.File
	n     *counts
	least int64
}

// LeastCarried is from how many bytes on the file's Reader is said to pay.
func (c counted) LeastCarried() int64 { return c.least }

type counts struct {
	gate                   chan struct{} // reads begin once it is closed; nil: at once
	mu                     sync.Mutex
	readers, starts, waits int
	first                  int // started before the first wait
}

func (c counted) NewReader(...layout.File) layout.Reader {
	return &countedReader{Reader: layout.NewReader(c.File), n: c.n}
}

type countedReader struct {
	layout.Reader
	n    *counts
	used bool
}

func (r *countedReader) Start(f layout.File, tag int, bufs [][]byte, off int64) {
	if r.n.gate != nil {
		<-r.n.gate
	}
	r.n.mu.Lock()
	if !r.used {
		r.used = true
		r.n.readers++
	}
	r.n.starts++
	r.n.mu.Unlock()
	r.Reader.Start(f.(counted).File, tag, bufs, off)
}

func (r *countedReader) Wait() (tag, n int, err error) {
	r.n.mu.Lock()
	if r.n.waits++; r.n.waits == 1 {
		r.n.first = r.n.starts
	}
	r.n.mu.Unlock()
	return r.Reader.Wait()
}

// counting puts counted files before a source's.
func counting(n *counts) func(layout.Source) layout.Source {
	return func(s layout.Source) layout.Source {
		for i := range s.Lanes() {
			s.Lanes()[i].File = counted{File: s.Lanes()[i].File, n: n}
		}
		return s
	}
}

var readable = device.Model{Latency: 10 * ms, Several: true}

// A batch of demands is one worker's: it begins all of them, up to the lane's depth, and
// then waits.
func TestOneWorkerCarriesABatch(t *testing.T) {
	for _, depth := range []int{1, 3, 8} {
		synctest.Test(t, func(t *testing.T) {
			n := counts{gate: make(chan struct{})} // or the first is waited for before the last is asked
			r := newRig(t, rigOptions{model: readable, sums: device.Unsummed, wrap: counting(&n), Options: Options{Depth: depth}})
			synctest.Wait()
			in, start := &inbox{rig: r, blind: true}, time.Now()
			for e := range 6 {
				r.p.Demand(eid(e%4, e), e, in) // no neighbours
			}
			close(n.gate)
			in.await(6)
			if n.readers != 1 || n.starts != 6 || n.waits != 6 || n.first != min(depth, 6) {
				t.Errorf("depth %d: got %d reads and %d waits by %d workers, %d before the first wait, want 6 by one worker, %d", depth, n.starts, n.waits, n.readers, n.first, min(depth, 6))
			}
			want := time.Duration((6+depth-1)/depth) * 10 * ms
			if took := time.Since(start); took != want {
				t.Errorf("depth %d: got all after %v, want %v", depth, took, want)
			}
			if peak := r.drives[0].Stats().Peak; peak != min(depth, 6) {
				t.Errorf("got %d reads at once, want %d", peak, min(depth, 6))
			}
			r.close()
		})
	}
}

// What comes while a worker waits for its reads is begun at once, by another.
func TestWhoWaitsHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := readable
		model.Rule = hang(func(op device.Op) bool { return op.Seq == 0 })
		var n counts
		r := newRig(t, rigOptions{model: model, wrap: counting(&n), Options: Options{Depth: 3, SilentAfter: time.Hour}})
		in := &inbox{rig: r}
		r.p.Demand(eid(0, 0), 0, in) // hangs
		synctest.Wait()
		for e := range 4 {
			start := time.Now()
			r.p.Demand(eid(1, 2*e), 1+e, in)
			in.await(1 + e)
			if took := time.Since(start); took != 10*ms {
				t.Errorf("demand %d: got it after %v, want 10ms", e, took)
			}
		}
		if s := r.p.Stats(); s.Flying != 1 || n.starts != 5 {
			t.Errorf("got %d under way of %d begun, want the first of 5", s.Flying, n.starts)
		}
		r.drives[0].Remove()
		r.close()
	})
}

// What takes long to check is shared out to as many workers as there are cores.
func TestChecksAreSharedOut(t *testing.T) {
	cores := min(runtime.GOMAXPROCS(0), 6)
	for _, tt := range []struct {
		sums  device.Sums
		bytes int64
		want  int
	}{{device.Unsummed, longCheck, 1}, {device.Summed, longCheck / 2, 1}, {device.Summed, longCheck, cores}} {
		synctest.Test(t, func(t *testing.T) {
			n := counts{gate: make(chan struct{})}
			r := newRig(t, rigOptions{model: readable, sums: tt.sums, bytes: tt.bytes, wrap: counting(&n), Options: Options{Depth: 6}})
			r.p.mu.Lock()
			r.p.cores = cores
			r.p.mu.Unlock()
			synctest.Wait()
			in, start := &inbox{rig: r}, time.Now()
			for e := range 6 {
				r.p.Demand(eid(e%4, e), e, in)
			}
			close(n.gate)
			in.await(6)
			if took := time.Since(start); took != 10*ms || n.readers != tt.want {
				t.Errorf("%+v: got %d workers and all after %v, want 10ms", tt, n.readers, took)
			}
			r.close()
		})
	}
}

// A second try that hangs holds only its own expert up.
func TestSecondTriesHoldNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := readable
		bad.Rule = func(op device.Op) device.Effect {
			switch {
			case op.Offset != 0:
				return device.Effect{Delay: 5 * ms}
			case op.Seq < 4:
				return device.Effect{Err: errDrive}
			}
			return device.Effect{Delay: 24 * time.Hour}
		}
		r := newRig(t, rigOptions{model: bad, Options: Options{Depth: 4, SilentAfter: time.Hour}})
		synctest.Wait()
		in, start := &inbox{rig: r}, time.Now()
		for e := range 4 {
			r.p.Demand(eid(e%4, e), e, in)
		}
		in.await(3)
		if took := time.Since(start); took != 15*ms {
			t.Errorf("got the others after %v, want 15ms", took)
		}
		time.Sleep(2 * time.Hour)
		got := in.letters()
		if len(got) != 4 || got[3].tag != 0 || !errors.Is(got[3].err, ErrNoAnswer) {
			t.Errorf("got %+v, want the expert at 0 as the last, with %v", got, ErrNoAnswer)
		}
		r.drives[0].Remove()
		r.close()
	})
}

// broken is a file whose readers do something that none should.
type broken struct {
	layout.File
	fault func(r *brokenReader) (tag, n int, err error)
	room  int
}

func (b broken) NewReader(...layout.File) layout.Reader {
	return &brokenReader{Reader: layout.NewReader(b.File), file: b}
}

type brokenReader struct {
	layout.Reader
	file broken
}

func (r *brokenReader) Room() int {
	if r.file.room > 0 {
		return min(r.file.room, r.Reader.Room())
	}
	return r.Reader.Room()
}

func (r *brokenReader) Start(f layout.File, tag int, bufs [][]byte, off int64) {
	r.Reader.Start(f.(broken).File, tag, bufs, off)
}

func (r *brokenReader) Wait() (tag, n int, err error) { return r.file.fault(r) }

// A reader that breaks is given up, and what it had is read again.
func TestBrokenReaders(t *testing.T) {
	for name, fault := range map[string]func(*brokenReader) (int, int, error){
		"panics":        func(*brokenReader) (int, int, error) { panic("out of order") },
		"wrong tag":     func(*brokenReader) (int, int, error) { return 77, 8192, nil },
		"negative tag":  func(*brokenReader) (int, int, error) { return -1, 0, errDrive },
		"errors always": func(r *brokenReader) (int, int, error) { tag, _, _ := r.Reader.Wait(); return tag, 0, errDrive },
		"claims more":   func(r *brokenReader) (int, int, error) { tag, n, err := r.Reader.Wait(); return tag, n + 1, err },
	} {
		synctest.Test(t, func(t *testing.T) {
			wrap := func(s layout.Source) layout.Source {
				for i := range s.Lanes() {
					s.Lanes()[i].File = broken{File: s.Lanes()[i].File, fault: fault}
				}
				return s
			}
			r := newRig(t, rigOptions{model: readable, wrap: wrap})
			in := &inbox{rig: r}
			for e := range 6 {
				r.p.Demand(eid(e%4, e), e, in)
			}
			in.await(6)
			for _, l := range in.letters() {
				if l.err != nil {
					t.Errorf("%s: expert %d: got %v, want the bytes of the second try", name, l.tag, l.err)
				}
			}
			r.close()
		})
	}
}

// A reader without room for more than one read leaves the others to other workers.
func TestReadersWithLittleRoom(t *testing.T) {
	for _, room := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			wrap := func(s layout.Source) layout.Source {
				for i := range s.Lanes() {
					s.Lanes()[i].File = broken{File: s.Lanes()[i].File, room: room, fault: func(r *brokenReader) (int, int, error) { return r.Reader.Wait() }}
				}
				return s
			}
			r := newRig(t, rigOptions{model: readable, wrap: wrap, Options: Options{Depth: 6}})
			synctest.Wait()
			in, start := &inbox{rig: r}, time.Now()
			for e := range 6 {
				r.p.Demand(eid(e%4, e), e, in)
			}
			in.await(6)
			if took := time.Since(start); took != 10*ms {
				t.Errorf("room for %d: got all after %v, want 10ms", room, took)
			}
			r.close()
		})
	}
}

// Records smaller than what a Reader pays for are read by a worker each.
func TestSmallRecordsAreReadOneAtATime(t *testing.T) {
	const bytes = 8192
	for least, want := range map[int64]int{bytes: 3, bytes + 1: 0} {
		synctest.Test(t, func(t *testing.T) {
			var n counts
			r := newRig(t, rigOptions{model: readable, bytes: bytes, wrap: func(s layout.Source) layout.Source {
				s = counting(&n)(s)
				for i, lane := range s.Lanes() {
					file := lane.File.(counted)
					file.least = least
					s.Lanes()[i].File = file
				}
				return s
			}, Options: Options{Depth: 3}})
			in := &inbox{rig: r}
			for e := range 3 {
				r.p.Demand(eid(0, e), e, in)
			}
			in.await(3)
			if n.starts != want {
				t.Errorf("readers pay from %d bytes on: got %d reads by them, want %d", least, n.starts, want)
			}
			r.close()
		})
	}
}
