package rawread

import (
	"errors"
	"fmt"
	"time"

	"outrider/layout"
)

// Options say what to read and how.
type Options struct {
	// Source holds the files; it stays the caller's, and open.
	Source layout.Source
	// Experts are read in this order, each as often as it is listed. The slice
	// is only read.
	Experts []layout.ExpertID

	// Buffers are read into; they stay the caller's. nil makes some for the run.
	Buffers *Buffers
	Workers int   // reads at once, 1 to 1024, by one goroutine if the lanes have a layout.Reader for that many, else by one each; 0 means 8, as in prefetcher
	Block   int64 // bytes of one read at most, 4 KiB to 64 MiB, a multiple of 4096; 0 means 1 MiB, as in prefetcher
	// MaxBytes ends the run once that much has been asked of the drive, and
	// MaxDuration once that much time has passed: reads under way are finished
	// and counted. 0 means no end but that of Experts.
	MaxBytes    int64
	MaxDuration time.Duration
}

const (
	defaultWorkers = 8
	maxWorkers     = 1024
	defaultBlock   = 1 << 20
	minBlock       = 4096
	maxBlock       = 64 << 20
	maxBuffers     = 4 << 30 // of all workers together
)

// Report is what was read.
type Report struct {
	Bytes    int64         // that arrived, without what a lane's end cut off
	Reads    int64         // that ended
	Experts  int           // begun; the last may have been cut by a limit
	Duration time.Duration // from the first read to the end of the last
	Direct   bool          // all lanes are read around the page cache
}

// BytesPerSecond is 0 for a run that took no time.
func (r Report) BytesPerSecond() float64 {
	if r.Duration <= 0 {
		return 0
	}
	return float64(r.Bytes) / r.Duration.Seconds()
}

// withDefaults checks the options and fills in the defaults.
func (o Options) withDefaults() (Options, error) {
	if o.Source == nil {
		return o, errors.New("rawread: options need a source")
	}
	if o.Workers == 0 {
		o.Workers = defaultWorkers
	}
	if o.Block == 0 {
		o.Block = defaultBlock
	}
	switch {
	case o.Workers < 1 || o.Workers > maxWorkers:
		return o, fmt.Errorf("rawread: %d workers, want 1 to %d", o.Workers, maxWorkers)
	case o.Block < minBlock || o.Block > maxBlock || o.Block%minBlock != 0:
		return o, fmt.Errorf("rawread: blocks of %d bytes, want a multiple of %d up to %d", o.Block, minBlock, maxBlock)
	case o.MaxBytes < 0 || o.MaxDuration < 0:
		return o, fmt.Errorf("rawread: limits of %d bytes and %v, want 0 or more", o.MaxBytes, o.MaxDuration)
	}
	if a := alignment(o.Source); o.Block%a != 0 {
		o.Block = (o.Block + a - 1) / a * a // a block must keep the lane's alignment
	}
	if o.Buffers != nil && !o.Buffers.fit(o.Workers, o.Block) {
		return o, fmt.Errorf("rawread: the buffers given are too few or too small for %d workers with blocks of %d bytes", o.Workers, o.Block)
	}
	if o.Block*int64(o.Workers) > maxBuffers {
		return o, fmt.Errorf("rawread: %d workers with blocks of %d bytes need more than %d bytes of buffers: take fewer or smaller ones",
			o.Workers, o.Block, int64(maxBuffers))
	}
	return o, nil
}

// alignment is the largest that a lane asks for, 1 if none does.
func alignment(src layout.Source) int64 {
	align := 1
	for _, lane := range src.Lanes() {
		a := lane.File.Direct()
		align = max(align, a.Memory, a.Offset)
	}
	return int64(align)
}
