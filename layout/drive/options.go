package drive

import (
	"errors"
	"fmt"
	"time"

	"outrider/layout"
)

// Options say what to measure and what that may take.
type Options struct {
	// Path is a folder, in which a temporary file is made; or a file, or the
	// folder of a store: these are read, and nothing is written.
	Path string
	// FS finds Path and makes the temporary file. Nil means layout.OS(): only
	// then does the profile have facts of the device.
	FS layout.WriteFS
	// Reads opens what is read; nil means FS. It is for another engine over the
	// same files, such as a layout.System. The caller closes it.
	Reads layout.FS
	// Duration bounds the whole call, the writing of the temporary file
	// included: 1 s to 10 min, 0 means 15 s.
	Duration time.Duration
	// SpaceBytes bounds the temporary file: from 16 MiB, 0 means 1 GiB. It never
	// takes more than a quarter of the free space.
	SpaceBytes int64
	// RecordBytes adds a block size of one's own to the table, such as that of
	// an expert's record: up to 64 MiB, rounded up to a multiple of 4096; 0: none.
	RecordBytes int64
	// Progress, if given, is told how far the call is, in milliseconds of the
	// longest it may take, between reads and from one goroutine.
	Progress func(done, total int64)

	system bool // FS is the default
}

const (
	defaultDuration = 15 * time.Second
	minDuration     = time.Second
	maxDuration     = 10 * time.Minute
	defaultSpace    = 1 << 30
	minSpace        = 16 << 20
	maxBlock        = 64 << 20
	blockStep       = 4096 // blocks are multiples of it, and of the file's alignment
)

// Validate reports the first option that cannot be used.
func (o Options) Validate() error {
	_, err := o.withDefaults()
	return err
}

// withDefaults checks the options and fills in the defaults.
func (o Options) withDefaults() (Options, error) {
	if o.FS == nil {
		o.FS, o.system = layout.OS(), true
	}
	if o.Reads == nil {
		o.Reads = o.FS
	}
	if o.Duration == 0 {
		o.Duration = defaultDuration
	}
	if o.SpaceBytes == 0 {
		o.SpaceBytes = defaultSpace
	}
	switch {
	case o.Path == "":
		return o, errors.New("drive: options need a path")
	case o.Duration < minDuration || o.Duration > maxDuration:
		return o, fmt.Errorf("drive: a duration of %v, want %v to %v", o.Duration, minDuration, maxDuration)
	case o.SpaceBytes < minSpace:
		return o, fmt.Errorf("drive: a temporary file of %d bytes, want at least %d", o.SpaceBytes, minSpace)
	case o.RecordBytes < 0 || o.RecordBytes > maxBlock:
		return o, fmt.Errorf("drive: records of %d bytes, want up to %d", o.RecordBytes, maxBlock)
	}
	return o, nil
}
