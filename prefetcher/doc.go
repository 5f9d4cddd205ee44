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
//   - Block: a piece of a flight, one ReadAt. Blocks of one flight are read in
//     parallel, over all lanes that the record lies on.
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
//	                       reading   blocks to workers; a failed block once more
//	                          │ last block
//	                          ▼
//	                      settling   checksums; a mismatch reads all once more
//	                          │
//	                          ▼
//	              Commit and Arrived(lease), or Abort and Arrived(error)
//
// A forecast that has not started is only an Item in the Queue. It gets a slot, and
// so a victim is chosen, when a worker takes it.
//
// # Who goes first
//
// A worker that is free takes, in this order: a block of a demand under way; a
// parked demand, if room was freed; a queued demand; a block of a speculative
// read under way; a queued speculative read, if no demand is queued or parked and
// the Governor has width left on a lane. So a demand waits for the block that a
// worker is at, and never for the rest of a large speculative read. Lower classes
// have a bounded wait: see Queue, and Options.Patience for blocks.
//
// # Pure parts
//
// Queue, Admission and Governor have no I/O, locks or clock; the simulation uses
// the same ones.
//
// # Ownership and locks
//
// The Prefetcher owns its workers: New starts and Close joins them. Source and
// cache are the caller's, to be closed after Close. A slot belongs to its flight
// from Begin to Commit or Abort, and is aborted only when no block of it is being
// read. A lease given to Arrived is the waiter's to release.
//
// Lock order: plan.mu, then Prefetcher.mu. The cache is called with plan.mu at
// most; sources, files, waiters and the logger with no lock held.
package prefetcher
