// Package overlap is memory in which an expert appears at its address at one moment,
// whole and checked, and where a thread that reads it earlier waits (userfaultfd of
// Linux). So a kernel over stacked experts, which knows nothing of reads, can begin
// with a layer while some of its experts are still on their way.
//
//	slots    where reads land: any slot for any expert, in huge pages as far as it has them
//	stacks   where experts are computed with: one address each, empty until published
//	publish  the pages of a slot move to the expert's address (UFFDIO_MOVE of Linux 6.8),
//	         and whoever waits there goes on; an eviction moves them back into the slot
//	fault    a thread touched what is not there: if it is on its way, it waits; if not,
//	         the pass fails and the thread reads zeros, so that nothing ever hangs
//
//	         Take, read, Commit            Publish
//	slot     ──────────────────▶ │ huge │ huge │ tail │ ─────────┐
//	         ◀────── Move, Give: pages back, or to the system ──┐ │
//	stack    │ expert 0 │ (waits) │ expert 2 │ … ◀──────────────┴─┘
//
// A pass is what llama.cpp computes in one go: Begin waits for the one before, Expect
// names the experts of a layer that are brought, Publish shows each, End closes the pass
// and says whether all of what was read was there. What a pass has computed means nothing if End returns an error.
package overlap
