package prefetcher

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"outrider/experts"
	"outrider/internal/device"
	"outrider/layout"
)

// watch is a source that fails the test when the same bytes are read by two at
// once.
type watch struct {
	layout.Source
	lanes []layout.Lane
}

func newWatch(t testing.TB, src layout.Source) watch {
	w := watch{Source: src}
	for _, l := range src.Lanes() {
		w.lanes = append(w.lanes, layout.Lane{Path: l.Path, File: &watchFile{File: l.File, t: t, open: map[int64]bool{}}})
	}
	return w
}

func (w watch) Lanes() []layout.Lane { return w.lanes }

type watchFile struct {
	layout.File
	t    testing.TB
	mu   sync.Mutex
	open map[int64]bool
}

func (f *watchFile) ReadAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	if f.open[off] {
		f.t.Errorf("offset %d is read twice at once", off)
	}
	f.open[off] = true
	f.mu.Unlock()
	defer func() { // the file may panic
		f.mu.Lock()
		delete(f.open, off)
		f.mu.Unlock()
	}()
	return f.File.ReadAt(p, off)
}

// NewReader is that of the file below, watched too.
func (f *watchFile) NewReader(others ...layout.File) layout.Reader {
	if r := layout.NewReader(f.File); r != nil {
		return &watchReader{Reader: r, under: map[int]*watchFile{}, at: map[int]int64{}}
	}
	return nil
}

type watchReader struct {
	layout.Reader
	under map[int]*watchFile
	at    map[int]int64
}

func (r *watchReader) Start(file layout.File, tag int, bufs [][]byte, off int64) {
	f := file.(*watchFile)
	f.mu.Lock()
	if f.open[off] {
		f.t.Errorf("offset %d is read twice at once", off)
	}
	f.open[off] = true
	f.mu.Unlock()
	r.under[tag], r.at[tag] = f, off
	r.Reader.Start(f.File, tag, bufs, off)
}

func (r *watchReader) Wait() (tag, n int, err error) {
	defer func() {
		for t, f := range r.under { // a panic leaves no tag: none counts then
			if t == tag || tag < 0 {
				f.mu.Lock()
				delete(f.open, r.at[t])
				f.mu.Unlock()
				delete(r.under, t)
			}
		}
	}()
	tag = -1
	tag, n, err = r.Reader.Wait()
	return tag, n, err
}

// client demands experts as a runner does: pin, else demand and wait.
type client struct {
	r       *rig
	answers chan letter
	asked   int
	told    int
}

func (c *client) Arrived(tag int, l experts.Lease, err error) {
	c.answers <- letter{tag: tag, lease: l, err: err}
}

// layer uses some experts of a layer, each lease for a moment.
func (c *client) layer(layer int, rnd *rand.Rand, allowed ...error) {
	shape := c.r.src.Shape()
	ids := rnd.Perm(shape.Experts)[:shape.TopK]
	missing := 0
	for _, e := range ids {
		id := eid(layer, e)
		if l, out := c.r.cache.Pin(id); out.Resident() {
			c.use(l)
			continue
		}
		c.r.p.Demand(id, e, c)
		c.asked++
		missing++
		if rnd.IntN(16) == 0 {
			missing -= c.r.p.Cancel(id, c)
		}
	}
	for range missing {
		a := <-c.answers
		c.told++
		if a.err == nil {
			c.use(a.lease)
			continue
		}
		ok := false
		for _, e := range allowed {
			ok = ok || errors.Is(a.err, e)
		}
		if !ok {
			c.r.t.Errorf("layer %d expert %d: got %v, want one of %v", layer, a.tag, a.err, allowed)
		}
	}
}

func (c *client) use(l experts.Lease) {
	c.r.check(l)
	if err := l.Release(); err != nil {
		c.r.t.Errorf("release: got %v, want nil", err)
	}
}

// run lets clients go through the layers while forecasts, some of them right,
// are read ahead.
func (r *rig) run(clients, passes int, seed uint64, allowed ...error) {
	shape := r.src.Shape()
	var step atomic.Int64
	var wg sync.WaitGroup
	for n := range clients {
		wg.Go(func() {
			c := &client{r: r, answers: make(chan letter, 4*shape.TopK)}
			rnd := rand.New(rand.NewPCG(seed, uint64(n)))
			for range passes {
				for l := range shape.Layers {
					s := step.Add(1)
					r.cache.Step()
					r.p.Progress(s)
					var list []Candidate
					for range 6 {
						d := rnd.IntN(3) + 1
						list = append(list, Candidate{eid((l+d)%shape.Layers, rnd.IntN(shape.Experts)), rnd.Float32(), s + int64(d)})
					}
					r.p.Speculate(s, list)
					c.layer(l, rnd, allowed...)
				}
			}
		})
	}
	wg.Wait()
}

func TestRandomAgainstTruth(t *testing.T) {
	faults := device.All(device.Fail(40, errDrive, 3), device.Stall(10, ms, 4), func(op device.Op) device.Effect {
		switch op.Seq % 97 {
		case 13:
			return device.Effect{Silent: true}
		case 29:
			return device.Effect{Short: 7}
		case 43:
			return device.Effect{Flip: true}
		case 71:
			return device.Effect{Panic: true}
		}
		return device.Effect{}
	})
	tests := []struct {
		name    string
		o       rigOptions
		allowed []error
	}{
		{"roomy", rigOptions{}, nil},
		{"tight", rigOptions{room: 2}, nil},
		{"lanes and blocks", rigOptions{room: 6, bytes: 30000, lanes: 3, Options: Options{Block: 4096}}, nil},
		{"one worker", rigOptions{room: 5, Options: Options{Depth: 1}}, nil},
		{"faults", rigOptions{room: 8, bytes: 20000, model: device.Model{Rule: faults}, Options: Options{Block: 8192}},
			[]error{errDrive, ErrShort, ErrSilent, ErrPanic, ErrChecksum}},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			seed := uint64(i + 1)
			t.Logf("seed %d", seed)
			tt.o.wrap = func(s layout.Source) layout.Source { return newWatch(t, s) }
			tt.o.Governor.OffBelow = 1e-9 // keep speculating, wrong as it is
			r := newRig(t, tt.o)
			r.run(4, 60, seed, tt.allowed...)
			s := r.p.Stats()
			t.Logf("%+v", s)
			if s.DemandReads == 0 || (tt.o.room != 2 && s.Issued == 0) {
				t.Errorf("got %d demand and %d speculative reads, want some of both", s.DemandReads, s.Issued)
			}
			r.close()
		})
	}
}

// The same in virtual time, with slow drives: everything ends, in order.
func TestRandomInVirtualTime(t *testing.T) {
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, rigOptions{
				room: 7, bytes: 20000, lanes: 2,
				model:   device.Model{BytesPerSecond: 1e8, Latency: ms, Depth: 4, Rule: device.Stall(20, 30*ms, seed)},
				wrap:    func(s layout.Source) layout.Source { return newWatch(t, s) },
				Options: Options{Block: 4096, Depth: 3, Governor: GovernorOptions{OffBelow: 1e-9}},
			})
			r.run(3, 20, seed)
			r.close()
		})
	}
}

// Close in the midst of everything: each demand is answered once.
func TestRandomClose(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, rigOptions{
				room: 5, bytes: 20000, model: device.Model{BytesPerSecond: 1e8, Latency: ms},
				Options: Options{Block: 4096, Depth: 3},
			})
			var ended sync.WaitGroup
			ended.Go(func() {
				time.Sleep(time.Duration(seed*3+1) * ms / 2)
				if err := r.p.Close(); err != nil {
					t.Errorf("Close: got %v, want nil", err)
				}
			})
			r.run(3, 4, seed, ErrClosed)
			ended.Wait()
			r.close()
		})
	}
}

// holder is a client that also takes parts and holds each for a moment.
type holder struct {
	client
	mu    sync.Mutex
	parts []heldPart
}

func (h *holder) PartArrived(tag, i int, data []byte, hold Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parts = append(h.parts, heldPart{tag: tag, i: i, data: data, hold: hold})
}

// letGo checks that the held parts are what they were, and releases them.
func (h *holder) letGo(layer int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.parts {
		want := h.r.src.Want(eid(layer, p.tag))
		half := (len(want) + 1) / 2
		if p.i == 0 {
			want = want[:half]
		} else {
			want = want[half:]
		}
		if !bytes.Equal(p.data, want) {
			h.r.t.Errorf("layer %d expert %d part %d: a held part has changed", layer, p.tag, p.i)
		}
		p.hold.Release()
	}
	h.parts = h.parts[:0]
}

// layer demands experts as a holder, waits for all and looks at the parts.
func (h *holder) layer(layer int, rnd *rand.Rand, allowed ...error) {
	missing := 0
	var leases []experts.Lease
	for _, e := range rnd.Perm(h.r.src.Shape().Experts)[:2] {
		if l, out := h.r.cache.Pin(eid(layer, e)); out.Resident() {
			h.use(l)
			continue
		}
		h.r.p.Demand(eid(layer, e), e, h)
		missing++
	}
	for range missing {
		a := <-h.answers
		switch {
		case a.err == nil:
			leases = append(leases, a.lease)
		case !slices.ContainsFunc(allowed, func(e error) bool { return errors.Is(a.err, e) }):
			h.r.t.Errorf("layer %d expert %d: got %v, want one of %v", layer, a.tag, a.err, allowed)
		}
	}
	time.Sleep(time.Duration(rnd.IntN(3)) * ms)
	h.letGo(layer)
	for _, l := range leases {
		h.use(l)
	}
}

// Copies, stalls, hangs, faults and held parts at once, on three lanes: no wrong
// byte, no lost answer, nothing left, and never more than the budget.
func TestRandomLanes(t *testing.T) {
	allowed := []error{errDrive, ErrShort, ErrSilent, ErrPanic, ErrChecksum, ErrNoAnswer}
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			models := make([]device.Model, 3)
			for i := range models {
				models[i] = device.Model{BytesPerSecond: 1e8, Latency: ms / 2, Rule: device.All(
					device.Stall(15, 20*ms, seed+uint64(i)), device.Stall(150, 300*ms, seed+7*uint64(i)), device.Fail(60, errDrive, seed+uint64(i)),
					func(op device.Op) device.Effect {
						return device.Effect{Silent: op.Seq%89 == 11, Flip: op.Seq%61 == 7, Panic: op.Seq%101 == 13}
					})}
			}
			r := newRig(t, rigOptions{
				room: 12, bytes: 40000, models: models, shares: []float64{3, 2, 1},
				copied:  func(id layout.ExpertID) bool { return id.Index%3 != 0 },
				Options: Options{Block: 8192, Depth: 3, SilentAfter: 100 * ms, Governor: GovernorOptions{OffBelow: 1e-9}},
			})
			var wg sync.WaitGroup
			wg.Go(func() {
				h := &holder{client: client{r: r, answers: make(chan letter, 8)}}
				rnd := rand.New(rand.NewPCG(seed, 99))
				for i := range 120 {
					h.layer(i%4, rnd, allowed...)
				}
			})
			r.run(2, 20, seed, allowed...)
			wg.Wait()
			s := r.p.Stats()
			if seed == 0 {
				t.Logf("%+v", s)
			}
			time.Sleep(time.Minute) // whatever hangs ends
			r.close()
		})
	}
}
