package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"outrider/internal/amount"
	"outrider/layout"
	"outrider/layout/drive"
)

type probeCmd struct {
	Path    string        `arg:"" help:"A folder on the drive, a large file on it, or a store."`
	Seconds float64       `help:"The whole call takes that long at most, the writing of the temporary file included (${default})." default:"15" placeholder:"S"`
	Space   amount.Amount `help:"The temporary file takes that much at most, and never more than a quarter of the free space (${default})." default:"1GiB" placeholder:"BYTES"`
	Size    amount.Amount `help:"Also measure blocks of this size, such as that of an expert." placeholder:"BYTES"`
	Engine  string        `help:"What reads: io_uring, pread, or auto: io_uring where the system allows it (${default})." enum:"auto,io_uring,pread" default:"auto" placeholder:"NAME"`
	Save    string        `help:"Write the profile to this file, in place of what is there." placeholder:"FILE"`
}

func (probeCmd) Help() string {
	return "Measures what a drive gives to direct random reads, over block size and depth (reads at once), and says which settings reach it. In a folder a temporary file of random bytes is written, " +
		"read and removed, also on ^C; a file and the lanes of a store are only read. The cells of the table are measured in rounds, in shuffled order, and are medians of them. " +
		"The advice is the smallest block that comes within 5 % of the best rate, at the smallest depth that comes within 5 % of that block's best. " +
		"A warning tells when memory was measured and not the drive." + statusHelp
}

// Run measures and tells.
func (c *probeCmd) Run(ctx context.Context, a *app) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	if c.Save != "" {
		if _, err := os.Stat(filepath.Dir(c.Save)); err != nil {
			return fmt.Errorf("save the profile: %w", err)
		}
	}
	system, err := layout.OpenSystem(layout.SystemOptions{Engine: engines[c.Engine]})
	if err != nil {
		return err
	}
	o.Reads = system
	err = c.probe(ctx, a, o)
	if errors.Is(err, drive.ErrNoAnswer) {
		return err // Close would wait for the call that hangs
	}
	return errors.Join(err, system.Close())
}

// engines are the names that --engine takes.
var engines = map[string]layout.EngineKind{"auto": layout.AutoEngine, "io_uring": layout.RingEngine, "pread": layout.PreadEngine}

func (c *probeCmd) options() (drive.Options, error) {
	if c.Space.Share > 0 || c.Size.Share > 0 {
		return drive.Options{}, usagef("--space and --size are bytes, such as 512MiB, not shares")
	}
	if !(c.Seconds > 0 && c.Seconds < math.MaxInt32) {
		return drive.Options{}, usagef("--seconds is %g, want more than 0", c.Seconds)
	}
	o := drive.Options{
		Path: c.Path, Duration: time.Duration(c.Seconds * float64(time.Second)), SpaceBytes: c.Space.Bytes, RecordBytes: c.Size.Bytes,
	}
	if err := o.Validate(); err != nil {
		return o, usageError{err.Error()}
	}
	return o, nil
}

func (c *probeCmd) probe(ctx context.Context, a *app, o drive.Options) error {
	bar := a.progress("probing", "seconds")
	defer bar.finish()
	o.Progress = func(done, total int64) { bar.set(done/1000, total/1000) }
	p, err := drive.Probe(ctx, o)
	bar.finish()
	if errors.Is(err, drive.ErrSmall) {
		return inputError{err.Error()}
	} else if err != nil {
		return err
	}
	if c.Save != "" {
		if err := p.Save(c.Save); err != nil {
			return err
		}
	}
	return a.print(p, probeText{p, c.Save}.writeTo)
}
