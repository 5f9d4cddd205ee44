package layout

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// longYield is how long a yield takes only where every P computes: the
	// scheduler takes a P away after 10 ms.
	longYield = 4 * time.Millisecond

	// After a long yield there is none for yieldPause times as long, but no more
	// than maxYieldPause: what yields cost stays under two in a hundred.
	yieldPause    = 64
	maxYieldPause = 2 * time.Second
)

// crowd tells whether a goroutine that parks would be woken late. The scheduler
// learns of a ring's completions when a P has nothing to run, and else only every
// 10 ms. Safe for concurrent use.
type crowd struct {
	start    time.Time
	samples  sync.Pool    // of *loadSamples
	yielding atomic.Int64 // callers that are giving way
	paused   atomic.Int64 // nobody gives way until that long after start
}

type loadSamples [3]metrics.Sample

func newLoadSamples() *loadSamples {
	return &loadSamples{
		{Name: "/sched/goroutines/running:goroutines"},
		{Name: "/sched/goroutines/runnable:goroutines"},
		{Name: "/sched/gomaxprocs:threads"},
	}
}

// here reports whether the caller's P would go to another goroutine if the caller
// parked, while no other P is free: then nobody would look for completions. What
// waits for a P may be other readers about to park as well, so they go first.
func (c *crowd) here() bool {
	return c.full() && (!c.giveWay() || c.full())
}

// full reports whether all Ps run goroutines, and others wait for one. It costs
// less than a microsecond.
func (c *crowd) full() bool {
	s, _ := c.samples.Get().(*loadSamples)
	if s == nil {
		s = newLoadSamples()
	}
	defer c.samples.Put(s)
	metrics.Read(s[:])
	for i := range s {
		if s[i].Value.Kind() != metrics.KindUint64 {
			return true // a later Go that does not tell: what is safe
		}
	}
	running, runnable, procs := s[0].Value.Uint64(), s[1].Value.Uint64(), s[2].Value.Uint64()
	return running >= procs && int64(runnable) > c.yielding.Load()
}

// giveWay lets other goroutines run, unless that took long not long ago.
func (c *crowd) giveWay() bool {
	begin := time.Since(c.start)
	if int64(begin) < c.paused.Load() {
		return false
	}
	c.yielding.Add(1)
	runtime.Gosched()
	c.yielding.Add(-1)
	end := time.Since(c.start)
	if took := end - begin; took > longYield {
		c.paused.Store(int64(end + min(yieldPause*took, maxYieldPause)))
	}
	return true
}
