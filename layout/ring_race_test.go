//go:build race

package layout

// RaceEnabled leaves out counts of allocations: with the race detector a
// sync.Pool forgets things at random.
const RaceEnabled = true
