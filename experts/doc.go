// Package experts holds expert weights in memory: one hard byte budget, the
// slots in it, who is pinned, and who goes next. It knows no disk and no
// forecast: a reader asks for a slot and fills it, a Policy ranks the victims.
//
// # Words
//
//   - slot: the memory of one expert, as large as its layer's records
//   - fill: a slot that is being read into; ends in Commit or Abort, or in
//     Abandon if its read is stuck
//   - stray: a second buffer of a fill, or one that a stuck read may still write
//     into; ends in Release
//   - lease: pinned, read-only access; ends in Release
//   - floor: what one layer of one token needs; cycle: what one token touches
//     over all layers
//   - step: one layer execution
//   - useful, wasted, displaced: a speculative read that was there at its first
//     use, was dropped unused, threw out an expert that was demanded next
//
// # Life of a slot
//
//	         Begin              Commit               Pin
//	free ───────────▶ filling ──────────▶ resident ───────▶ leased
//	 ▲                   │                │    ▲              │
//	 │       Abort       │                │    └──────────────┘
//	 ├───────────────────┘                │      last Release
//	 │   evicted: budget lowered, Close   │
//	 └────────────────────────────────────┤ evictable while no lease holds it
//	                                      │
//	           filling (another expert) ◀─┘ evicted by another's Begin
//
// Every state but free is charged. A slot whose expert was evicted stays
// charged until its memory went to another expert or back to the system, so
// the budget bounds memory, not just books. It is exceeded in one case only:
// when it is lowered, what leases and fills hold above it goes as they end.
//
// A read that is stuck in the kernel may write into its slot at any time, so the
// slot can be neither published nor used again. Spare lends a second buffer to
// read once more from elsewhere; Swap makes that the slot's if it comes first.
// Abandon makes the expert absent. Memory that is in no slot is astray: charged,
// and nobody else's, until Release.
//
// A slot that goes to another expert keeps its pages: in the steady state the
// cache makes no system call and allocates nothing. In a FixedMemory the pages
// move to the other's address instead, with a system call or two.
//
// # How much of the system's memory
//
// AutoBudget finds a budget from what the system and the cgroups leave. The
// budget bounds the process, whatever the others do; if they run short,
// Pressure, fed by a PressureSource, says by how much to lower it (SetBudget)
// and when it may be raised again. Options.Lock keeps slots from being swapped
// out instead: then all shortage is the others'.
//
// # Who owns what
//
// A Fill's bytes are its holder's alone, to write, until it ends; so are a
// spare's, until Swap or Release. The old buffer of a Swap and that of an Abandon
// belong to whatever still writes there, until Release.
// After Commit nobody writes them until the expert is evicted, which no lease
// survives. Parts are copied in and owned by the slot. The cache owns its
// Memory and closes it when it is closed itself and the last lease, fill and
// stray have ended.
//
// # Locks
//
// Cache.mu is held over the Table and over Policy.Expect and Policy.Keys, which
// must be quick and must not call the cache; never over Memory, Options.Freed
// or the log. The memories' own locks guard who has which slot and are never
// held together with Cache.mu. Table has no lock and is used alone by
// simulations.
package experts
