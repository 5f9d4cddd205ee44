package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"outrider/internal/amount"
	"outrider/internal/iobench"
	"outrider/layout"
)

type benchCmd struct {
	Dir     string          `help:"Where the files to read are made and removed again; default: the system's folder for temporary files." placeholder:"DIR"`
	Size    amount.Amount   `help:"Of those files together (${default})." default:"2GiB" placeholder:"BYTES"`
	Seconds int             `help:"About how long is measured, besides making the files (${default})." default:"60" placeholder:"N"`
	Store   string          `help:"Read a store, or a checkpoint in place, instead; nothing is written then." placeholder:"STORE"`
	Batches []iobench.Batch `help:"What a layer asks for at once: experts and their size (${default})." default:"8x4MiB,8x1MiB,6x256KiB" placeholder:"BATCH"`
	Raw     string          `help:"The raw reader: fio (io_uring, buffers in huge pages), own (a loop of ours), or auto: fio if it is installed (${default})." enum:"auto,fio,own" default:"auto" placeholder:"READER"`
	Engine  string          `help:"How the runtime reads: pread, io_uring, or auto (${default})." enum:"auto,pread,io_uring" default:"auto" placeholder:"ENGINE"`
}

func (benchCmd) Help() string {
	return "Measures what the runtime delivers of what the drive gives, in one run: a raw reader and the runtime read the same files in short slices that take turns, and the first arm is repeated last. " +
		"share of raw is the median over the rounds of an arm's rate over that of the raw reader with blocks of an expert's size, at its best depth, just before and after." +
		`

Rows:

	batch-8x4MiB        a layer's 8 experts of 4 MiB are asked for at once, waited for,
	                    released, and then the next layer's. None is in memory before.
	batch-8x4MiB+crc    the same with the store's checksums compared, which a raw reader
	                    does not; all other rows leave them out
	batch-8x4MiB+ahead  the next batch is asked for while one is read
	single-4MiB         one expert at a time
	mixed-demand        one expert that nobody foresaw, while the forecast's reads go on;
	                    its times are those of that expert alone
	mixed-alone         the same without a forecast
	hits                Use and Release of a batch in memory; hits+forecast: while the
	                    forecast learns from it
	writes              what the process wrote in all of these: to drives, and by calls
	                    (those of 8 bytes wake Go's scheduler)

With fio it takes about twice as long as --seconds, since fio takes long to start.` + statusHelp
}

// leastSeconds is what a round of all arms takes to mean anything.
const leastSeconds = 1

// Run measures, and removes what it made.
func (c *benchCmd) Run(ctx context.Context, a *app) (err error) {
	if c.Seconds < leastSeconds || c.Seconds > int(time.Hour/time.Second) {
		return usagef("--seconds is %d, want 1 to 3600", c.Seconds)
	}
	if c.Size.Bytes <= 0 {
		return usagef("--size is a share, want bytes such as 2GiB")
	}
	system, err := openEngine(c.Engine)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, system.Close()) }()
	raw, err := c.reader(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, raw.Close()) }()
	targets, remove, err := c.targets(ctx, a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()

	bar := a.progress("measuring", "slices")
	defer bar.finish()
	result, err := iobench.Run(ctx, iobench.Options{
		Targets: targets, Raw: raw, FS: system, Duration: time.Duration(c.Seconds) * time.Second, Progress: bar.set})
	if err != nil {
		return err
	}
	bar.finish()
	return a.print(result, func(w io.Writer) { writeBench(w, result) })
}

// targets are the files to read, and what removes those that were made.
func (c *benchCmd) targets(ctx context.Context, a *app) ([]*iobench.Target, func() error, error) {
	nothing := func() error { return nil }
	if c.Store != "" {
		t, err := iobench.NewTarget(layout.OS(), func(fsys layout.FS) (layout.Source, error) {
			m, err := openModel(fsys, c.Store, layout.Direct)
			if err != nil {
				return nil, err
			}
			return m.Source, nil
		})
		switch {
		case errors.Is(err, iobench.ErrTooSmall):
			return nil, nil, inputf("%s: %v", c.Store, err)
		case err != nil:
			return nil, nil, err
		}
		return []*iobench.Target{t}, nothing, nil
	}
	stores, err := iobench.Plan(iobench.StoresOptions{Batches: c.Batches, Bytes: c.Size.Bytes, Dir: c.Dir})
	switch {
	case errors.Is(err, iobench.ErrTooSmall):
		return nil, nil, usagef("--size: %v", err)
	case err != nil:
		return nil, nil, err
	}
	a.warn(fmt.Sprintf("writing %s into a folder of %s, to be read and then removed", bytesText(stores.Bytes()), stores.Dir()))
	bar := a.progress("writing", inBytes)
	targets, err := stores.Make(ctx, bar.set)
	bar.finish()
	if err != nil {
		return nil, nil, err
	}
	return targets, stores.Remove, nil
}

// reader is the raw reader that was asked for. It closes what it opened.
func (c *benchCmd) reader(ctx context.Context) (iobench.Raw, error) {
	if c.Raw != "own" {
		switch raw, err := iobench.FindFio(ctx); {
		case err == nil:
			return raw, nil
		case c.Raw == "fio":
			return nil, err
		}
	}
	system, err := layout.OpenSystem(layout.SystemOptions{})
	if err != nil {
		return nil, err
	}
	return iobench.NewOwn(system, system.Engine(), system), nil
}

// openEngine is the system's files, read as asked for; the caller closes it.
func openEngine(name string) (*layout.System, error) {
	system, err := layout.OpenSystem(layout.SystemOptions{Engine: engines[name]})
	if err != nil {
		return nil, fmt.Errorf("--engine %s: %w", name, err)
	}
	return system, nil
}
