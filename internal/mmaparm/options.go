package mmaparm

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"outrider/layout"
)

// Options say what to map and how much memory it may take.
type Options struct {
	// Source names the files and where the experts lie in them. It stays the
	// caller's; Start only asks it, and the child opens the files itself.
	Source layout.Source
	// BudgetBytes is the page cache that the arm may keep; 0 means no limit. Far
	// under the read-ahead setting of the device (Conditions) the arm cannot live.
	BudgetBytes int64
	// Threads touch pages at once, 1 to 256; 0 means one for each CPU.
	Threads int
}

// ErrOutOfMemory: the kernel killed the child because the limit leaves no room
// even for the pages of one fault and what it reads around it.
var ErrOutOfMemory = errors.New("killed in a full cgroup")

const (
	maxThreads = 256
	maxBudget  = 1 << 60 // leaves room for the overhead
)

func (o Options) withDefaults() (Options, error) {
	if o.Threads == 0 {
		o.Threads = min(runtime.NumCPU(), maxThreads)
	}
	switch {
	case o.Source == nil:
		return o, errors.New("mmaparm: options need a source")
	case o.BudgetBytes < 0 || o.BudgetBytes > maxBudget:
		return o, fmt.Errorf("mmaparm: a budget of %d bytes, want 0 to %d", o.BudgetBytes, int64(maxBudget))
	case o.Threads < 1 || o.Threads > maxThreads:
		return o, fmt.Errorf("mmaparm: %d threads, want 1 to %d", o.Threads, maxThreads)
	}
	return o, nil
}

// Use is one layer of one pass.
type Use struct {
	Layer   int     `json:"layer"`
	Experts []int32 `json:"experts"` // each once, in the order of their use
	// Before is the compute before the routing is known, After the compute that
	// needs the experts. Both are imitated by waiting (Compute).
	Before time.Duration `json:"before_ns,omitempty"`
	After  time.Duration `json:"after_ns,omitempty"`
}

// Result is what some uses took.
type Result struct {
	Uses     int           `json:"uses"`
	Stall    time.Duration `json:"stall_ns"`    // touching: the exposed stall
	Computed time.Duration `json:"computed_ns"` // compute as it really took
	Took     time.Duration `json:"took_ns"`     // all of it, without the talk between the processes
	// MajorFaults had to wait for a read, MinorFaults found their page in the
	// cache. A fault maps several pages at once, so there are fewer than pages.
	MajorFaults int64 `json:"major_faults"`
	MinorFaults int64 `json:"minor_faults"`
	// TouchedBytes are whole pages, each as often as it was used.
	TouchedBytes int64 `json:"touched_bytes"`
	// ReadBytes came from the device, with what the kernel read ahead; -1 where
	// the system does not tell.
	ReadBytes int64 `json:"read_bytes"`
}

// Add adds the figures of o, which came after.
func (r *Result) Add(o Result) {
	r.Uses += o.Uses
	r.Stall += o.Stall
	r.Computed += o.Computed
	r.Took += o.Took
	r.MajorFaults += o.MajorFaults
	r.MinorFaults += o.MinorFaults
	r.TouchedBytes += o.TouchedBytes
	if r.ReadBytes < 0 || o.ReadBytes < 0 {
		r.ReadBytes = -1
		return
	}
	r.ReadBytes += o.ReadBytes
}

// Limit is how the arm's memory is bounded.
type Limit struct {
	// Bytes is the cgroup's limit: BudgetBytes and OverheadBytes. 0: none.
	Bytes, BudgetBytes int64
	// OverheadBytes are for the page tables and for what the child's own heap
	// may grow. What of it is not needed is page cache in the arm's favour.
	OverheadBytes int64
	Group         string // the cgroup's folder; empty: none
	Reason        string // why there is no limit
}

// String is for a report: "limited to 4194304 bytes + 1114112 overhead" or
// "unlimited: REASON".
func (l Limit) String() string {
	if l.Bytes == 0 {
		return "unlimited: " + l.Reason
	}
	return fmt.Sprintf("limited to %d bytes + %d overhead", l.BudgetBytes, l.OverheadBytes)
}

// Conditions are what the arm found when it started, for a report.
type Conditions struct {
	// CachedPages of the files' TotalPages were in the page cache and could not
	// be dropped: they cost the arm neither a read nor a byte of its limit. With
	// none of them the start is cold.
	CachedPages, TotalPages int64
	Reason                  string // why the pages could not be dropped or counted; empty if they were
	// ReadAheadBytes is how far the kernel reads around a fault, by the device's
	// setting (read_ahead_kb), the largest over the files; -1 where it does not
	// tell. A large one near the budget makes the cache thrash.
	ReadAheadBytes int64
}
