package runtime

import (
	"fmt"

	"outrider/layout"
	"outrider/prefetcher"
)

// wholeRequest is up to which size neighbouring blocks are asked for together where a
// drive's profile says how to cut reads: larger requests cost less of the processor.
const wholeRequest = 4 << 20

// readOptions says how a source is to be read.
func readOptions(o Options, source layout.Source) (prefetcher.Options, error) {
	p := prefetcher.Options{
		Source: source, Depth: o.Depth, Block: o.Block, SilentAfter: o.SilentAfter, Logger: o.Logger,
		NoSpeculation: o.NoSpeculation || !o.forecasts(),
	}
	if o.Drive == nil {
		return p, nil
	}
	if p.Depth == 0 {
		p.Depth = o.Drive.Depth
	}
	if p.Block == 0 {
		p.Block = o.Drive.BlockBytes
		p.Request = max(p.Block, wholeRequest)
	}
	var err error
	p.Lanes, err = laneOptions(o, len(source.Lanes()))
	return p, err
}

// laneOptions are what a profile tells of each of so many lanes.
func laneOptions(o Options, lanes int) ([]prefetcher.LaneOptions, error) {
	d, all := o.Drive, make([]prefetcher.LaneOptions, lanes)
	if n := len(d.Lanes); n > 0 && n != lanes {
		return nil, fmt.Errorf("runtime: the drive's profile is of %d lanes (%s), the model has %d: probe the store that is opened", n, d.Path, lanes)
	}
	for i := range all {
		of := d
		if len(d.Lanes) > 0 {
			of = &d.Lanes[i]
		}
		all[i].BytesPerSecond = of.BytesPerSecond
		if o.Depth == 0 {
			all[i].Depth = of.Depth
		}
	}
	return all, nil
}
