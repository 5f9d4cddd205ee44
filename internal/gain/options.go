package gain

import (
	"errors"
	"fmt"
	"time"

	"outrider/layout"
)

// ErrTime: the temporary store was not written in the time allowed.
var ErrTime = errors.New("not enough time")

// ErrSpace: the temporary store may not be large enough for one expert.
var ErrSpace = errors.New("too little space allowed")

// Options say what to compare, and what that may take.
type Options struct {
	// Checkpoint is the model, as layout/checkpoint describes it. It is only read.
	Checkpoint *layout.Checkpoint
	// Dir is a folder on the drive where the store would lie. A temporary store is
	// made in it and removed again.
	Dir string
	// FS makes the temporary store; nil means layout.OS().
	FS layout.WriteFS
	// Reads opens what is measured; nil means FS. It is for another engine over the
	// same files, such as a layout.System. The caller closes it.
	Reads layout.FS
	// Depth is how many reads of experts are under way at once, 1 to 1024: DepthOf
	// says what suits a drive. 0 means 8.
	Depth int
	// RawDepth and BlockBytes are how the raw rate is measured: reads at once, 1 to
	// 1024, and their size, 4 KiB to 64 MiB, a multiple of 4096. They are what a
	// drive.Profile recommends; 0 means Depth, and 1 MiB.
	RawDepth   int
	BlockBytes int64
	// Duration is what the call takes at most, but for the round that is under way
	// when it ends: 1 s to 10 min, 0 means 10 s. Half of it is for packing at most.
	Duration time.Duration
	// SpaceBytes bounds the expert bytes of the temporary store, from 1 MiB on; 0
	// means 128 MiB. Padding and index come on top, 2 % at most.
	SpaceBytes int64
	// Progress, if given, is told how far the call is, in milliseconds of the
	// longest it should take, possibly from several goroutines at once.
	Progress func(done, total int64)
}

const (
	defaultDepth    = 8
	maxDepth        = 1024
	defaultBlock    = 1 << 20
	minBlock        = 4096
	maxBlock        = 64 << 20
	defaultDuration = 10 * time.Second
	minDuration     = time.Second
	maxDuration     = 10 * time.Minute
	defaultSpace    = 128 << 20
	minSpace        = 1 << 20
)

// readBlock is how the runtime cuts long reads, so both layouts are read so.
const readBlock = 1 << 20

// Validate reports the first option that cannot be used.
func (o Options) Validate() error {
	_, err := o.withDefaults()
	return err
}

// withDefaults checks the options and fills in the defaults.
func (o Options) withDefaults() (Options, error) {
	if o.FS == nil {
		o.FS = layout.OS()
	}
	if o.Reads == nil {
		o.Reads = o.FS
	}
	if o.Depth == 0 {
		o.Depth = defaultDepth
	}
	if o.RawDepth == 0 {
		o.RawDepth = o.Depth
	}
	if o.BlockBytes == 0 {
		o.BlockBytes = defaultBlock
	}
	if o.Duration == 0 {
		o.Duration = defaultDuration
	}
	if o.SpaceBytes == 0 {
		o.SpaceBytes = defaultSpace
	}
	switch {
	case o.Checkpoint == nil || o.Dir == "":
		return o, errors.New("gain: options need a checkpoint and a folder")
	case min(o.Depth, o.RawDepth) < 1 || max(o.Depth, o.RawDepth) > maxDepth:
		return o, fmt.Errorf("gain: %d reads at once, and %d raw, want 1 to %d", o.Depth, o.RawDepth, maxDepth)
	case o.BlockBytes < minBlock || o.BlockBytes > maxBlock || o.BlockBytes%minBlock != 0:
		return o, fmt.Errorf("gain: raw reads of %d bytes, want a multiple of %d up to %d", o.BlockBytes, minBlock, maxBlock)
	case o.Duration < minDuration || o.Duration > maxDuration:
		return o, fmt.Errorf("gain: a duration of %v, want %v to %v", o.Duration, minDuration, maxDuration)
	case o.SpaceBytes < minSpace:
		return o, fmt.Errorf("gain: a temporary store of %d bytes, want at least %d", o.SpaceBytes, minSpace)
	}
	return o, nil
}
