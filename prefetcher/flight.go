package prefetcher

import (
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
	parts PartWaiter // w, if it is one
	tag   int
	asked time.Time
	told  uint64 // parts that it was told of, by bit
}

type flightState uint8

const (
	flightQueued   flightState = iota // a demand in the queue
	flightParked                      // a demand that found no room
	flightOpening                     // a worker locates it and begins the slot
	flightReading                     // blocks are being read, or wait for a worker
	flightSettling                    // all blocks are read; a worker commits
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
	unnamed     int   // forecasts in a row that did not name it
	look        int64 // of stopStaleLocked, the latest
	item        Item  // what it was taken as
	waiters     []waiting
	left        int // blocks not begun
	busy        int // blocks being read, or checked after that
	err         error
	bad         *ChecksumError // of the first part whose checksum was wrong
	again       bool           // was read a second time for that
	parts       []int          // blocks that each part waits for
	ready       uint64         // parts that are there and checked, by bit
	summed      bool           // some part has a checksum
	joined      bool           // somebody has not been told of those
	held        bool           // fill is a slot to be given back
	twin        *twin          // a second buffer that blocks are read into too
	twinned     bool           // had one: not a second time
	hedging     bool           // and it is being made
	covered     error          // of a block that the twin has too
	hold        *orphan        // who holds parts of it; nil: nobody did
	lost        bool           // a worker may still look at it: not to be used again

	before int64   // when begun for a demand: bytes of demands not read yet, its own included
	beside bool    // then: forecasts were being read on its lanes
	ideal  float64 // then: seconds that it should take without; 0: not known

	place  layout.Placement
	fill   experts.Fill
	blocks []block
	told   []waiting
	leases []experts.Lease
	began  time.Time
}

// recycled is the flight emptied, with its slices to be used again.
func (f *flight) recycled() flight {
	clear(f.waiters[:cap(f.waiters)])
	clear(f.told[:cap(f.told)])
	clear(f.leases[:cap(f.leases)])
	clear(f.blocks[:cap(f.blocks)])
	return flight{
		waiters: f.waiters[:0], told: f.told[:0], leases: f.leases[:0],
		place: f.place, blocks: f.blocks[:0], parts: f.parts[:0],
	}
}

// countParts sets how many blocks each part of the placement waits for.
func (f *flight) countParts() {
	f.parts, f.ready = f.parts[:0], 0
	for _, p := range f.place.Parts {
		n := 0
		for i := range f.blocks {
			if f.blocks[i].touches(p) {
				n++
			}
		}
		f.parts = append(f.parts, n)
	}
}
