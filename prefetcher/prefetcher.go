package prefetcher

import (
	"crypto/rand"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"outrider/experts"
	"outrider/layout"
)

// Prefetcher reads experts into a cache. All methods may be called from several
// goroutines.
type Prefetcher struct {
	opt       Options
	cache     *experts.Cache
	shape     layout.Shape
	lanes     []*lane
	copies    bool    // some lane has copies
	cores     int     // that can check at once
	unit      int64   // blocks of all lanes are multiples of it
	slotBytes []int64 // by layer
	log       *slog.Logger
	crcTable  *crc32.Table
	canary    canary
	workers   errgroup.Group // of all lanes, and the watcher
	poke      chan struct{}  // wakes the watcher; holds one

	count       counters
	blockTimes  histogram
	demandTimes histogram

	// epoch counts RoomFreed, parked the flights that wait for it. They are
	// apart from mu so that RoomFreed costs nothing when nobody waits: who
	// parks counts himself first and looks at epoch then, RoomFreed the other
	// way round, so one of them sees the other.
	epoch  atomic.Uint64
	parked atomic.Int64

	plan struct {
		sync.Mutex
		list []Candidate
	}

	mu struct {
		sync.Mutex
		closed  bool
		queue   *Queue
		flights map[layout.ExpertID]*flight
		spare   []*flight
		items   []Item // scratch

		parked    []*flight
		fullEpoch uint64 // epoch in which the cache said that there is no room
		fullBytes int64  // for slots of as many bytes or more; noLimit: it did not

		opening       int   // speculative flights being opened
		demandOpening int   // the same of demands
		flying        int   // requests being read
		choices       int64 // of lanes, for blocks that lie twice
		looks         int64

		watchAt     time.Time // when the watcher looks next; zero: when poked
		allStuck    bool      // then: no worker of any lane could do anything
		hedgedBytes int64

		governor *Governor
		crowd    crowd
		lapses   *Lapses
		chores   []chore
		pace     pace
		step     int64
		seen     experts.TableStats // what the governor was told of
	}
}

const noLimit = math.MaxInt64

// New makes a prefetcher and starts its workers; Close ends them. The cache's
// experts.Options.Freed must call RoomFreed, or demands that find no room wait
// for ever.
func New(opt Options) (*Prefetcher, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Prefetcher{
		opt: opt, cache: opt.Cache, shape: opt.Source.Shape(), log: opt.Logger,
		crcTable: crc32.MakeTable(crc32.Castagnoli), poke: make(chan struct{}, 1),
	}
	if err := p.shape.Validate(); err != nil {
		return nil, fmt.Errorf("prefetcher: %w", err)
	}
	for l := range p.shape.Layers {
		p.slotBytes = append(p.slotBytes, opt.Source.SlotBytes(l))
	}
	if _, err := rand.Read(p.canary[:]); err != nil {
		return nil, fmt.Errorf("prefetcher: %w", err)
	}
	p.makeLanes(opt)
	p.mu.queue = NewQueue(p.shape, opt.Patience)
	p.mu.flights = make(map[layout.ExpertID]*flight)
	p.mu.fullBytes = noLimit
	p.mu.governor = NewGovernor(opt.Governor)
	p.mu.crowd = newCrowd(p.opt.Governor.MaxWidth)
	p.mu.lapses = NewLapses(p.shape)
	p.mu.pace = newPace(len(p.lanes))
	p.cores = min(runtime.GOMAXPROCS(0), runtime.NumCPU())
	for _, l := range p.lanes {
		l.several = p.carries(l)
		for range l.depth {
			p.workers.Go(func() error { return p.work(l) })
		}
	}
	p.workers.Go(p.watch)
	return p, nil
}

// Demand asks for an expert that the caller did not find in the cache: w is told
// when it is there, with tag. It joins a read that is queued or under way, which
// then becomes a demand, or queues one. It does not wait and makes no system call,
// except to wake a worker. Each call is answered exactly once, unless Cancel takes
// it back; after Close, and for an expert that the source has not, it is answered
// before Demand returns.
func (p *Prefetcher) Demand(id layout.ExpertID, tag int, w Waiter) {
	p.count.demands.Add(1)
	parts, _ := w.(PartWaiter)
	p.demand(id, waiting{w: w, parts: parts, tag: tag, asked: time.Now()})
}

func (p *Prefetcher) demand(id layout.ExpertID, wt waiting) {
	if !p.shape.Contains(id) {
		wt.w.Arrived(wt.tag, experts.Lease{}, fmt.Errorf("prefetcher: %v: %w", id, experts.ErrUnknownExpert))
		return
	}
	p.mu.Lock()
	closed := p.mu.closed
	if !closed {
		p.demandLocked(id, wt)
	}
	p.mu.Unlock()
	if closed {
		wt.w.Arrived(wt.tag, experts.Lease{}, ErrClosed)
	}
}

func (p *Prefetcher) demandLocked(id layout.ExpertID, wt waiting) {
	if f := p.mu.flights[id]; f != nil {
		f.waiters = append(f.waiters, wt)
		f.joined = f.joined || wt.parts != nil
		p.count.joins.Add(1)
		p.promoteLocked(f)
		return
	}
	f := p.newFlightLocked(id)
	f.class = Demand
	f.waiters = append(f.waiters, wt)
	if p.mu.queue.Promote(id, p.mu.step) {
		p.count.promoted.Add(1)
	} else {
		p.mu.queue.Push(Item{ID: id, Class: Demand, NeededBy: p.mu.step, P: 1})
	}
	if p.freeLocked() == 0 && slices.ContainsFunc(p.lanes, func(l *lane) bool { return l.width > 0 }) {
		p.mu.governor.DemandWait()
	}
	p.wakeLocked(1)
	if p.mu.allStuck {
		p.wakeAtLocked(time.Now())
	}
}

// promoteLocked makes a flight a demand that somebody waits for.
func (p *Prefetcher) promoteLocked(f *flight) {
	if f.state != flightOpening {
		p.lateLocked(f)
	}
	if f.class == Demand {
		return
	}
	f.class = Demand
	if f.state != flightReading {
		return
	}
	p.promoteOpsLocked(f)
	for i := range f.blocks {
		if b := &f.blocks[i]; b.state == blockWaiting {
			p.lanes[b.lane].take(b) // out of one line
			p.putLocked(b, false)   // into the other
		}
	}
}

// promoteOpsLocked makes demands of the requests that read the flight.
func (p *Prefetcher) promoteOpsLocked(f *flight) {
	now := time.Now()
	for _, l := range p.lanes {
		for _, o := range l.flying {
			if !o.urgent && o.reads(f) {
				o.urgent = true
				l.width--
				p.mu.pace.lanes[l.index].begin(now)
				p.watchLocked(o)
			}
		}
	}
}

// lateLocked counts, once, a read begun by a forecast that a demand waits for.
func (p *Prefetcher) lateLocked(f *flight) {
	if f.speculative && !f.late {
		f.late = true
		p.count.late.Add(1)
		p.mu.governor.Late(1)
	}
}

// Cancel takes back all of w's demands for the expert that were not answered yet,
// and returns how many: Arrived will not be called for these. One that is missing
// in the number was answered or is being answered, and its lease is still w's to
// release. A read that others wait for goes on, and so does one whose blocks are
// being read; one that has not begun is dropped with its last waiter.
func (p *Prefetcher) Cancel(id layout.ExpertID, w Waiter) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.mu.flights[id]
	if f == nil {
		return 0
	}
	kept := f.waiters[:0]
	for _, wt := range f.waiters {
		if wt.w != w {
			kept = append(kept, wt)
		}
	}
	n := len(f.waiters) - len(kept)
	clear(f.waiters[len(kept):])
	f.waiters = kept
	if n == 0 || len(kept) > 0 {
		return n
	}
	switch f.state {
	case flightQueued:
		p.mu.queue.Remove(id)
		p.endLocked(f)
	case flightParked:
		p.unparkOneLocked(f)
		p.endLocked(f)
		p.wakeLocked(1) // speculation may go on
	}
	return n
}

// RoomFreed tells that the cache may have room for a fill that it refused: for
// experts.Options.Freed. It is cheap when no demand waits for room.
func (p *Prefetcher) RoomFreed() {
	p.epoch.Add(1)
	if p.parked.Load() == 0 {
		return
	}
	p.mu.Lock()
	p.wakeLocked(1)
	p.mu.Unlock()
}

// Close ends all reads: every waiter gets ErrClosed at once, queued reads are
// forgotten, and Close returns when the blocks that are being read have ended,
// since the kernel may write into a slot until then. A read that is stuck in the
// kernel thus holds Close, but no waiter. A second Close waits as well and is
// harmless. The error is nil: failures of reads went to their waiters.
func (p *Prefetcher) Close() error {
	p.mu.Lock()
	var told []waiting
	var idle []*flight
	if !p.mu.closed {
		p.mu.closed = true
		for _, f := range p.mu.flights {
			told = append(told, f.waiters...)
			f.waiters = nil
			if f.state == flightReading && f.busy == 0 && (f.twin == nil || f.twin.busy == 0) {
				f.state = flightSettling
				idle = append(idle, f)
			}
		}
		for _, c := range p.mu.chores {
			if c.f != nil {
				idle = append(idle, c.f)
			}
		}
		p.mu.chores = nil
		p.parked.Store(0)
		p.mu.parked = nil
		for _, l := range p.lanes {
			l.demand, l.ahead = nil, nil
			l.rouseAll()
		}
		p.mu.queue = NewQueue(p.shape, p.opt.Patience)
		clear(p.mu.flights)
		p.wakeAtLocked(time.Now())
	}
	p.mu.Unlock()
	for _, f := range idle {
		p.settle(f)
	}
	for _, wt := range told {
		wt.w.Arrived(wt.tag, experts.Lease{}, ErrClosed)
	}
	return p.workers.Wait()
}

func (p *Prefetcher) newFlightLocked(id layout.ExpertID) *flight {
	var f *flight
	if n := len(p.mu.spare); n > 0 {
		f = p.mu.spare[n-1]
		p.mu.spare = p.mu.spare[:n-1]
	} else {
		f = &flight{}
	}
	f.id = id
	p.mu.flights[id] = f
	return f
}

// endLocked forgets a flight that is nowhere else any more. Its slices are used
// again.
func (p *Prefetcher) endLocked(f *flight) {
	if p.mu.flights[f.id] == f {
		delete(p.mu.flights, f.id)
	}
	if f.lost {
		return
	}
	*f = f.recycled()
	p.mu.spare = append(p.mu.spare, f)
}

// abort gives a slot back. It can only fail when the flight's life cycle is
// broken, which the log should tell.
func (p *Prefetcher) abort(fill experts.Fill) {
	if err := fill.Abort(); err != nil && p.log != nil {
		p.log.Error("prefetcher: abort", "id", fill.ID().String(), "error", err)
	}
}
