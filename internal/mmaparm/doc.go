// Package mmaparm measures what users have without Outrider: the weights mapped
// into memory, as llama.cpp does (MAP_SHARED, PROT_READ), and the kernel's page
// cache to bring and to drop them. The kernel is given no advice; llama.cpp also
// declares its file sequential, which doubles how far the kernel reads around a
// fault (Conditions.ReadAheadBytes). It is an arm of a replay: the same
// uses of the same experts, in the same memory.
//
// To use an expert is to touch one byte of each page of its extents, by several
// threads that share every extent as they would share the rows of a matrix. The
// time that takes is the arm's exposed stall. It contains what the kernel does on
// the way (faults, reads, readahead, reclaim), and the touching itself, which is
// some microseconds a layer where all pages are in memory.
//
// # Processes
//
// The page cache has no limit of its own, but pages are charged to the memory
// cgroup of the process that brings them. So the arm is a child process in a
// cgroup whose limit is the budget plus a stated overhead:
//
//	parent                                child, in a memory cgroup
//	Start ──── files, extents ──────────▶ Serve: maps the files
//	Play  ──── uses with their compute ─▶ waits, touches, waits
//	      ◀─── stall, faults, bytes ─────
//	Close ──── end of input ────────────▶ ends; the cgroup is removed
//
// Both sides speak JSON, one object a line, in strict alternation: one request,
// one reply. The child ends when its input ends, and on Linux the kernel kills it
// when the parent dies. The cgroup is a child of the process's own (version 1), or
// where version 2 does not allow that, a sibling of it. A cgroup that a killed
// process has left is removed by the next Start beside it.
//
// Pages that are in the page cache before are charged to somebody else and limit
// nothing: Start drops them and tells how many stayed.
//
// It works on Linux only; elsewhere Start and Serve fail with errors.ErrUnsupported.
package mmaparm
