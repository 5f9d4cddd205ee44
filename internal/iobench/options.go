package iobench

import (
	"errors"
	"fmt"
	"time"

	"outrider/layout"
	"outrider/runtime"
)

// Options of Run. Targets and Raw are needed.
type Options struct {
	Targets []*Target
	Raw     Raw
	// FS is what the arms open their targets on; nil means layout.OS().
	FS layout.FS
	// Runtime are the options of all arms, of which the budget, the eviction rule and
	// what is forecast are set by each arm.
	Runtime runtime.Options

	// Duration is about how long is measured in all, without what fio takes to start
	// and the files to open: 1 s to 1 h, 0 means a minute.
	Duration time.Duration
	// HitUses is how many uses the arms of hits do in all; 0 means 100,000.
	HitUses int64
	// Progress is told how many of all slices are done; nil means nobody asks.
	Progress func(done, total int64)
}

const (
	defaultDuration = time.Minute
	defaultHitUses  = 100_000

	// A round is long enough that no slice is shorter than a few batches, and there
	// are several, since drives change their pace within seconds.
	roundTime  = 10 * time.Second
	mostRounds = 24

	// tuneShare of the time finds the best depth of the raw reader.
	tuneShare = 0.12
	tuneTries = 3
)

// tuneDepths are how many raw reads at once are tried.
var tuneDepths = []int{2, 4, 8, 16, 32}

// Parts of a round, in units: what the project's figures are of is measured longest.
const (
	rawUnits    = 0.5 // twice, before and after
	batchUnits  = 1
	otherUnits  = 0.5
	targetUnits = 2*rawUnits + batchUnits + 3*otherUnits
	mixedUnits  = 2 * otherUnits
)

func (o Options) withDefaults() (Options, error) {
	if len(o.Targets) == 0 || o.Raw == nil {
		return o, errors.New("iobench: options need targets and a raw reader")
	}
	if o.FS == nil {
		o.FS = layout.OS()
	}
	if o.Duration == 0 {
		o.Duration = defaultDuration
	}
	if o.HitUses == 0 {
		o.HitUses = defaultHitUses
	}
	if o.Duration < time.Second || o.Duration > time.Hour || o.HitUses < 0 {
		return o, fmt.Errorf("iobench: %v and %d uses, want 1 s to 1 h and 1 or more", o.Duration, o.HitUses)
	}
	return o, nil
}

// rounds and the unit of time in them.
func (o Options) rounds() (n int, unit time.Duration) {
	n = int(min(max(o.Duration/roundTime, 1), mostRounds))
	units := float64(n) * (float64(len(o.Targets))*targetUnits + mixedUnits)
	return n, time.Duration((1 - tuneShare) * float64(o.Duration) / units)
}

// tuneTime is one try of one depth of one target.
func (o Options) tuneTime() time.Duration {
	return time.Duration(tuneShare * float64(o.Duration) / float64(len(o.Targets)*len(tuneDepths)*tuneTries))
}
