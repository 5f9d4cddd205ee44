package prefetcher

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"outrider/experts"
	"outrider/internal/device"
	"outrider/layout"
)

// rig is a prefetcher over known records on modelled drives.
type rig struct {
	t      testing.TB
	src    *device.Records
	drives []*device.Drive
	cache  *experts.Cache
	budget int64
	blind  bool // there is nothing to compare
	p      *Prefetcher
}

// stack is memory that is never given back, so that nothing is paid for it.
type stack struct {
	mu   sync.Mutex
	free [][]byte
}

func (s *stack) Take(_ layout.ExpertID, n int64) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := len(s.free) - 1; last >= 0 {
		b := s.free[last]
		s.free = s.free[:last]
		return b, nil
	}
	return make([]byte, n), nil
}

func (s *stack) Give(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, b)
}

func (s *stack) Move(b []byte, _ layout.ExpertID, _ int64) ([]byte, error) { return b, nil }
func (s *stack) HugePages() bool                                           { return false }
func (s *stack) Fixed() bool                                               { return false }
func (s *stack) Close() error                                              { return nil }

type rigOptions struct {
	shape  layout.Shape // default 4 x 8, top 2
	bytes  int64        // of an expert; default 8192
	model  device.Model
	models []device.Model // instead of lanes and model: one a lane
	shares []float64      // of a record, by lane; default even
	copied func(layout.ExpertID) bool
	lanes  int // default 1
	room   int // experts that fit; default all
	sums   device.Sums
	policy experts.Policy
	bare   bool // as in use: an arena, no poison
	hollow bool // for times only: nothing is read, copied or compared
	wrap   func(layout.Source) layout.Source
	Options
}

func newRig(t testing.TB, o rigOptions) *rig {
	t.Helper()
	if o.shape.Layers == 0 {
		o.shape = layout.Shape{Layers: 4, Experts: 8, TopK: 2}
	}
	if o.bytes == 0 {
		o.bytes = 8192
	}
	if o.room == 0 {
		o.room = o.shape.Count()
	}
	r := &rig{t: t, blind: o.hollow}
	if o.models == nil {
		o.models = slices.Repeat([]device.Model{o.model}, max(o.lanes, 1))
	}
	for _, m := range o.models {
		m.Several = m.Several || several
		r.drives = append(r.drives, device.New(m))
	}
	var err error
	r.src, err = device.NewRecords(device.RecordsOptions{
		Shape: o.shape, Bytes: func(int) int64 { return o.bytes }, Drives: r.drives, Sums: o.sums,
		Weights: o.shares, Copied: o.copied, Hollow: o.hollow,
	})
	if err != nil {
		t.Fatal(err)
	}
	slots := make([]int64, o.shape.Layers)
	for l := range slots {
		slots[l] = r.src.SlotBytes(l)
	}
	r.budget = int64(o.room) * slots[0]
	var freed atomic.Pointer[Prefetcher]
	var memory experts.Memory // of the Go heap, so that the race detector sees it
	switch {
	case o.hollow:
		memory = &stack{}
	case !o.bare:
		memory = experts.NewHeapMemory()
	}
	r.cache, err = experts.New(experts.Options{
		Shape: o.shape, Bytes: slots, BudgetBytes: r.budget, Poison: !o.bare && !o.hollow,
		Memory: memory, Policy: o.policy, Protect: 1,
		Freed: func() {
			if p := freed.Load(); p != nil {
				p.RoomFreed()
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	o.Source, o.Cache = r.src, r.cache
	if o.wrap != nil {
		o.Source = o.wrap(r.src)
	}
	if r.p, err = New(o.Options); err != nil {
		t.Fatal(err)
	}
	freed.Store(r.p)
	return r
}

// close ends the rig and checks that nothing is left of it.
func (r *rig) close() {
	r.t.Helper()
	if err := r.p.Close(); err != nil {
		r.t.Errorf("Close: got %v, want nil", err)
	}
	if err := r.p.Close(); err != nil {
		r.t.Errorf("second Close: got %v, want nil", err)
	}
	s := r.cache.Stats()
	if s.Leases != 0 || s.Fills != 0 || s.Strays != 0 || s.ReleasedTwice != 0 {
		r.t.Errorf("at the end: got %d leases, %d fills, %d strays, %d released twice, want none", s.Leases, s.Fills, s.Strays, s.ReleasedTwice)
	}
	if s.Peak > r.budget {
		r.t.Errorf("memory: got peak %d, want at most the budget %d", s.Peak, r.budget)
	}
	if err := r.cache.Close(); err != nil {
		r.t.Errorf("cache Close: got %v, want nil", err)
	}
}

func (r *rig) reads() (n int64) {
	for _, d := range r.drives {
		n += d.Stats().Reads
	}
	return n
}

// check compares leased bytes with the truth.
func (r *rig) check(l experts.Lease) {
	want := r.src.Want(l.ID())
	got := l.Bytes()
	if len(got) < len(want) || !bytes.Equal(got[:len(want)], want) {
		r.t.Errorf("%v: got wrong bytes", l.ID())
	}
	if n := len(l.Parts()); n != 2 {
		r.t.Errorf("%v: got %d parts, want 2", l.ID(), n)
	}
}

// inbox is a waiter that keeps what it was told, in order.
type inbox struct {
	rig   *rig
	keep  bool // leases are not released at once
	blind bool // the bytes are not compared

	mu   sync.Mutex
	mail []letter
	news chan struct{} // made by await
	want int
}

// await waits until n letters have come.
func (b *inbox) await(n int) {
	b.mu.Lock()
	b.want, b.news = n, make(chan struct{})
	if len(b.mail) >= n {
		close(b.news)
	}
	b.mu.Unlock()
	<-b.news
}

type letter struct {
	tag   int
	lease experts.Lease
	err   error
	at    time.Time
}

func (b *inbox) Arrived(tag int, lease experts.Lease, err error) {
	if err == nil {
		if !b.blind && !b.rig.blind {
			b.rig.check(lease)
		}
		if !b.keep {
			if err := lease.Release(); err != nil {
				b.rig.t.Errorf("release: got %v, want nil", err)
			}
		}
	} else if lease.Held() {
		b.rig.t.Error("an error came with a lease, want none")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mail = append(b.mail, letter{tag: tag, lease: lease, err: err, at: time.Now()})
	if b.news != nil && len(b.mail) == b.want {
		close(b.news)
	}
}

func (b *inbox) letters() []letter {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]letter(nil), b.mail...)
}

func (b *inbox) tags() (tags []int) {
	for _, l := range b.letters() {
		tags = append(tags, l.tag)
	}
	return tags
}

// drop releases kept leases.
func (b *inbox) drop() {
	for _, l := range b.letters() {
		if l.lease.Held() {
			l.lease.Release()
		}
	}
}
