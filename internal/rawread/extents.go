package rawread

import (
	"fmt"
	"sync"
	"time"

	"outrider/layout"
)

// block is one ReadAt, of which need bytes must arrive.
type block struct {
	lane   int
	offset int64
	bytes  int64
	need   int64
	id     layout.ExpertID
}

// extents hands out the blocks of the listed experts in their order. Safe for
// concurrent use.
type extents struct {
	opt   Options
	lanes int
	until time.Time // zero: no end

	mu struct {
		sync.Mutex
		next  int // of opt.Experts
		place layout.Placement
		read  int   // of place.Reads
		from  int64 // in that read
		asked int64
	}
}

// take returns the next block; false means that there is none, or that a limit
// is reached.
func (e *extents) take() (block, bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.opt.MaxBytes > 0 && e.mu.asked >= e.opt.MaxBytes || !e.until.IsZero() && !time.Now().Before(e.until) {
		return block{}, false, nil
	}
	for {
		for ; e.mu.next > 0 && e.mu.read < len(e.mu.place.Reads); e.mu.read, e.mu.from = e.mu.read+1, 0 {
			r := e.mu.place.Reads[e.mu.read]
			if e.mu.from >= r.Need { // beyond it is the end of the file
				continue
			}
			n := min(e.opt.Block, r.Bytes-e.mu.from)
			b := block{lane: r.Lane, offset: r.Offset + e.mu.from, bytes: n, need: min(n, r.Need-e.mu.from), id: e.opt.Experts[e.mu.next-1]}
			e.mu.from += n
			e.mu.asked += n
			return b, true, nil
		}
		if e.mu.next == len(e.opt.Experts) {
			return block{}, false, nil
		}
		if err := e.locateLocked(e.opt.Experts[e.mu.next]); err != nil {
			return block{}, false, err
		}
		e.mu.next++
		e.mu.read, e.mu.from = 0, 0
	}
}

// locateLocked finds the reads of an expert, and checks them: the source may be
// of anybody's making.
func (e *extents) locateLocked(id layout.ExpertID) error {
	if err := e.opt.Source.Locate(id, &e.mu.place); err != nil {
		return fmt.Errorf("rawread: %w", err)
	}
	for _, r := range e.mu.place.Reads {
		if r.Lane < 0 || r.Lane >= e.lanes || r.Offset < 0 || r.Need < 0 || r.Need > r.Bytes {
			return fmt.Errorf("rawread: %v: the source names %d of %d bytes at %d of lane %d, of which there are %d",
				id, r.Need, r.Bytes, r.Offset, r.Lane, e.lanes)
		}
	}
	return nil
}

// begun is how many of the experts have been located.
func (e *extents) begun() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.next
}
