// Package prefetcher brings expert weights from a layout.Source into an
// experts.Cache: at once for what the router chose, ahead of time for what a
// forecast expects, never the same expert twice at a time.
//
// # Words
//
//   - Demand read: asked for by the router's decision. Speculative read: asked for
//     by a forecast, near (for the next layer execution) or far.
//   - Step: the number of layer executions since the start. Candidates say by which
//     step they are needed; Progress tells which one began.
//   - Flight: the one read of an expert that is queued or under way; whoever also
//     wants the expert joins it.
//   - Block: a piece of a flight that lies on one lane. Blocks of one flight are read
//     in parallel, over all lanes that the record lies on.
//   - Op: one request to a lane's file: a block, or neighbours of one or more flights.
//   - Twin: a second buffer of a flight, into which blocks are read from their copies.
//   - Orphan: a buffer that is done with, but not safe to be used again yet.
//   - Useful, late, wasted, displaced: see Stats.
//
// # Life of a flight
//
//	           Demand                     no room
//	   ┌──────────────────▶ queued ◀───────────────── parked
//	   │                      │      RoomFreed          ▲
//	absent                    ▼ a worker takes it       │
//	   │  Speculate        opening ─────────────────────┘
//	   └─────▶ Queue ────────▶│ Locate, Cache.Begin
//	                          ▼
//	                       reading   blocks lined up at their lanes; a block that
//	                          │      fails once more, from its copy if it has one;
//	                          │      parts are checked as they arrive (PartWaiter)
//	                          ▼ last block
//	                      settling   a wrong checksum: its blocks once more
//	                          │
//	                          ▼
//	              Commit and Arrived(lease), or Abort and Arrived(error)
//
// A forecast that has not started is only an Item in the Queue. It gets a slot, and
// so a victim is chosen, when a worker takes it. One that is under way is stopped
// when its layer is over, or when two forecasts in a row no longer name it, unless
// most of it is there.
//
// # Who goes first
//
// Each lane has its own workers, so that one that hangs keeps no other from reading.
// Where its files have a layout.Reader a worker carries several requests: it takes them
// one after another, begins all, and waits for the first end; second tries and what
// else may take long it leaves to workers that carry none. A lane reads no more than
// its depth of requests at once. A worker takes, in this order: a block of a demand in its lane's line;
// one in another lane's line that has a copy here and would be done earlier; a parked
// demand, if room was freed; a queued demand; a block of a speculative read in its
// line; a queued speculative read, if no demand is queued or parked and the Governor
// has width left. So a demand waits for the request that a worker is at, and never for
// the rest of a large speculative read, which is cut smaller than demands are. Lower
// classes have a bounded wait: see Queue, and Options.Patience for blocks. While a
// lane reads for a demand, large reads ahead wait; else they go out in full, unless the
// source never rests: then they are small, and bounded by what they cost demands
// (crowd).
//
// # Lanes
//
// Where a block lies twice it is read where it would be done first: by the bytes in
// line and under way, and by a decayed estimate of the lane's speed; one choice in a
// hundred tries the other lane. A demanded block that takes longer than 95 % of its
// lane's reads is read a second time from its copy, into a twin, for at most 5 % of all
// bytes; whichever is whole first counts. A lane that has not answered for
// Options.SilentAfter is avoided; what lies nowhere else is an error.
//
// # Pure parts
//
// Queue, Admission, Governor, Tempo, and the unexported rate and crowd have no I/O,
// locks or clock; the simulation uses the first four.
//
// # Ownership and locks
//
// The Prefetcher owns its workers and the watcher of overdue reads: New starts and
// Close joins them. Source and cache are the caller's, to be closed after Close. A slot
// belongs to its flight from Begin to Commit or Abort, and is aborted only when no
// block of it is being read: a flight that is given up before that leaves its slot to
// an orphan, which the last read, or the last Hold of a part, gives back. A lease given
// to Arrived is the waiter's to release.
//
// Lock order: plan.mu, then Prefetcher.mu. The cache is called with plan.mu at
// most; sources, files, waiters and the logger with no lock held.
package prefetcher
