package iobench

import (
	"runtime"
	"time"
)

// usage is what the process has used since it began.
type usage struct {
	at      time.Time
	cpu     time.Duration // user and system, of all threads
	mallocs uint64        // objects of the heap
	written written
}

// written is what the process has written. Known is false where the system does not
// tell.
type written struct {
	known  bool
	drive  int64 // bytes that were or will be written to a drive
	calls  int64 // bytes handed to write calls, wherever they went
	writes int64 // write calls
}

// readUsage reads the allocations last but one and the CPU time last at the start
// of what is measured, so that it does not count its own.
func readUsage() usage {
	var u usage
	var m runtime.MemStats
	u.written = processWrites()
	runtime.ReadMemStats(&m)
	u.mallocs = m.Mallocs
	u.cpu, u.at = processCPU(), time.Now()
	return u
}

// since fills in what was used from u until now.
func (u usage) since(s *Slice) {
	s.Took, s.CPU = time.Since(u.at), processCPU()-u.cpu
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s.Mallocs = int64(m.Mallocs - u.mallocs)
	now := processWrites()
	s.written = written{
		known: now.known && u.written.known,
		drive: now.drive - u.written.drive, calls: now.calls - u.written.calls, writes: now.writes - u.written.writes,
	}
}
