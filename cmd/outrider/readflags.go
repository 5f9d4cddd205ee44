package main

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"outrider/internal/amount"
	"outrider/layout"
	"outrider/layout/drive"
	"outrider/runtime"
)

// readFlags say how expert weights are read.
type readFlags struct {
	Engine string        `help:"What reads: io_uring, pread, or buffered (through the page cache); auto takes io_uring where the system allows it, else pread (${default})." enum:"auto,io_uring,pread,buffered" default:"auto"`
	Depth  int           `help:"Reads at once on each lane; 0 takes that of --probe, or else the runtime's default." default:"0" placeholder:"N"`
	Block  amount.Amount `help:"Bytes of one read at most; by default those of --probe, or else the runtime's." placeholder:"BYTES"`
	Probe  string        `help:"Read as this file recommends, which outrider probe --save wrote." placeholder:"FILE"`
}

// mode is how files are opened.
func (f *readFlags) mode() layout.Mode {
	if f.Engine == "buffered" {
		return layout.Buffered
	}
	return layout.Direct
}

// files is where files are opened that are read so, and what to close after them.
func (f *readFlags) files() (layout.FS, io.Closer, error) {
	if f.mode() == layout.Buffered {
		return layout.OS(), io.NopCloser(nil), nil
	}
	system, err := layout.OpenSystem(layout.SystemOptions{Engine: engines[f.Engine]})
	if err != nil {
		return nil, nil, err
	}
	return system, system, nil
}

// check is what can be told of the flags alone.
func (f *readFlags) check() error {
	if f.Depth < 0 || f.Depth > 1024 {
		return usagef("--depth is %d, want 1 to 1024, or 0 for the default", f.Depth)
	}
	if f.Block.Share > 0 || f.Block.Bytes%4096 != 0 {
		return usagef("--block is no multiple of 4096 bytes: give one such as 1MiB")
	}
	return nil
}

// profile is what --probe names, nil without it.
func (f *readFlags) profile() (*drive.Profile, error) {
	if f.Probe == "" {
		return nil, nil
	}
	p, err := drive.Load(f.Probe)
	if err != nil {
		return nil, inputf("--probe: %v", err)
	}
	return p, nil
}

// apply sets the runtime's options.
func (f *readFlags) apply(o *runtime.Options) (err error) {
	o.Depth, o.Block = f.Depth, f.Block.Bytes
	o.Drive, err = f.profile()
	return err
}

// settings are how many reads go on at once on each lane and the bytes of one, 0
// where that is left to the runtime.
func (f *readFlags) settings() (depth int, block int64, err error) {
	p, err := f.profile()
	if p == nil {
		return f.Depth, f.Block.Bytes, err
	}
	return cmp.Or(f.Depth, p.Depth), cmp.Or(f.Block.Bytes, p.BlockBytes), nil
}

// enginesText names what reads the lanes, each once: "io_uring, buffered".
func enginesText(engines []string) string {
	engines = slices.Clone(engines)
	slices.Sort(engines)
	return strings.Join(slices.Compact(engines), ", ")
}

// enginesOf are the engines of a runtime's lanes.
func enginesOf(stats runtime.Stats) (engines []string) {
	for _, lane := range stats.Lanes {
		engines = append(engines, lane.Engine)
	}
	return engines
}
