package prefetcher

import (
	"fmt"
	"time"

	"outrider/experts"
	"outrider/layout"
)

// Waiter is told once for each demanded expert. Implementations must be
// comparable, as a pointer is.
type Waiter interface {
	// Arrived hands over the lease of a demanded expert, which is then the
	// waiter's to release, or the error with the zero Lease. It is called with no
	// lock held, mostly from a worker, and must not block, nor call Close: the
	// worker reads nothing meanwhile. A panic in it is not caught.
	Arrived(tag int, lease experts.Lease, err error)
}

type waiting struct {
	w     Waiter
	tag   int
	asked time.Time
}

type flightState uint8

const (
	flightQueued   flightState = iota // a demand in the queue
	flightParked                      // a demand that found no room
	flightOpening                     // a worker locates it and begins the slot
	flightReading                     // blocks are being read, or wait for a worker
	flightSettling                    // all blocks are read; a worker checks and commits
)

// flight is the one read of an expert. Fields of the first group are guarded by
// Prefetcher.mu. Those of the second belong to the worker that opens or settles
// it; while it is reading they are only read, except for the slot's bytes, of which
// each block has its own.
type flight struct {
	id          layout.ExpertID
	state       flightState
	class       Class // Demand once anybody waits
	speculative bool  // begun by a forecast
	late        bool  // and counted as late
	waited      bool  // was parked before
	item        Item  // what it was taken as
	waiters     []waiting
	next        int // blocks before it have all been started
	left        int // blocks not started
	busy        int // workers in it
	err         error

	place  layout.Placement
	fill   experts.Fill
	held   bool // fill is a slot to be given back
	blocks []block
	again  bool // all blocks were read a second time
	told   []waiting
	leases []experts.Lease
	began  time.Time
}

// block is one ReadAt: slot[at:at+bytes] from offset of the lane, of which need
// bytes must arrive. The flags are guarded by Prefetcher.mu.
type block struct {
	lane   int
	offset int64
	at     int64
	bytes  int64
	need   int64

	started, ended bool
	urgent         bool // counted among the demand blocks of its lane
}

// checkPlacement finds what would make a read go outside of the slot. The source
// may be of anybody's making.
func checkPlacement(p *layout.Placement, slot int64, lanes int) error {
	if p.Bytes < 0 || p.Bytes > slot {
		return fmt.Errorf("%w: %d bytes for a slot of %d", ErrPlacement, p.Bytes, slot)
	}
	for i, r := range p.Reads {
		switch {
		case r.Lane < 0 || r.Lane >= lanes:
			return fmt.Errorf("%w: read %d of lane %d, there are %d", ErrPlacement, i, r.Lane, lanes)
		case r.Offset < 0 || r.Bytes < 1 || r.At < 0 || r.At > p.Bytes || r.Bytes > p.Bytes-r.At:
			return fmt.Errorf("%w: read %d of %d bytes at %d into %d of %d", ErrPlacement, i, r.Bytes, r.Offset, r.At, p.Bytes)
		case r.Need < 0 || r.Need > r.Bytes:
			return fmt.Errorf("%w: read %d needs %d of %d bytes", ErrPlacement, i, r.Need, r.Bytes)
		}
	}
	for i, part := range p.Parts {
		if part.At < 0 || part.Bytes < 0 || part.At > p.Bytes || part.Bytes > p.Bytes-part.At {
			return fmt.Errorf("%w: part %d of %d bytes at %d of %d", ErrPlacement, i, part.Bytes, part.At, p.Bytes)
		}
	}
	return nil
}

// cutBlocks cuts the reads into blocks of at most size bytes, appended to dst.
// Blocks of the reads alternate, so that workers who take them in order spread
// over the lanes.
func cutBlocks(dst []block, reads []layout.Read, size int64) []block {
	for from, more := int64(0), true; more; from += size {
		more = false
		for _, r := range reads {
			// Past Need is past the end of the file: nothing to read.
			if from >= r.Need {
				continue
			}
			n := min(size, r.Bytes-from)
			dst = append(dst, block{
				lane: r.Lane, offset: r.Offset + from, at: r.At + from,
				bytes: n, need: min(n, r.Need-from),
			})
			more = more || from+size < r.Need
		}
	}
	return dst
}
