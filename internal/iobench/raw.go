package iobench

import (
	"context"
	"time"
)

// Raw reads a target as fast as the drive allows, with nothing in between.
type Raw interface {
	// Name says who reads, and how: "fio 3.33 io_uring, huge pages".
	Name() string
	// Read reads blocks of the target's RecordBytes at random places for about d, with
	// each of the depths in turn, and returns a slice for each. Ops are blocks.
	Read(ctx context.Context, t *Target, depths []int, d time.Duration) ([]Slice, error)
	Close() error
}

// Slice is what was measured at one go.
type Slice struct {
	Ops     int64
	Bytes   int64
	Took    time.Duration
	CPU     time.Duration // of the whole process that read
	Mallocs int64         // objects of its heap; 0 for another process
	written written
}

// BytesPerSecond is 0 for a slice that took no time.
func (s Slice) BytesPerSecond() float64 {
	if s.Took <= 0 {
		return 0
	}
	return float64(s.Bytes) / s.Took.Seconds()
}

// CPUSecondsPerGiB is 0 for a slice that read nothing.
func (s Slice) CPUSecondsPerGiB() float64 {
	if s.Bytes <= 0 {
		return 0
	}
	return s.CPU.Seconds() / (float64(s.Bytes) / (1 << 30))
}

func (s *Slice) add(t Slice) {
	s.written.known = t.written.known && (s.written.known || s.Took == 0)
	s.Ops += t.Ops
	s.Bytes += t.Bytes
	s.Took += t.Took
	s.CPU += t.CPU
	s.Mallocs += t.Mallocs
	s.written.drive += t.written.drive
	s.written.calls += t.written.calls
	s.written.writes += t.written.writes
}
