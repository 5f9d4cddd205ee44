package drive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"outrider/layout"
)

// How the time of a call is divided. What remains after readShare is for the
// reads that are under way by then.
const (
	writeShare = 0.4 // the temporary file is written until then, and as large as it got
	readShare  = 0.8 // reads begin until then
)

// cancelGrace is how long a cancelled call waits for reads and writes under way.
const cancelGrace = 2 * time.Second

// Probe measures what Options.Path gives to direct random reads. It may be
// called from several goroutines, but two calls on one drive measure each other.
//
// It keeps up to 256 MiB of buffers, and leaves no file behind, whether it succeeds,
// fails or is cancelled. When ctx ends it returns the context's cause as soon as
// the calls under way have ended. An error of a read or write names file and
// offset. ErrNoAnswer means that a call hangs: see the package's notes on ownership.
func Probe(ctx context.Context, o Options) (*Profile, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := newCall(o)
	done := make(chan outcome, 1)
	go func() { done <- c.run(ctx) }()

	timeUp := time.NewTimer(o.Duration)
	defer timeUp.Stop()
	select {
	case out := <-done:
		return out.profile, out.err
	case <-timeUp.C:
	case <-ctx.Done():
		timeUp.Reset(cancelGrace)
		select {
		case out := <-done:
			return out.profile, out.err
		case <-timeUp.C:
		}
	}
	return nil, fmt.Errorf("drive: %s: %w: a call has not ended within %v; what it reads into stays in memory until it does",
		o.Path, ErrNoAnswer, time.Since(c.began).Round(time.Millisecond))
}

// call is one Probe under way.
type call struct {
	Options // with defaults
	began   time.Time
	rounds  int           // at most
	slice   time.Duration // at most
}

func newCall(o Options) *call {
	return &call{Options: o, began: time.Now(), rounds: maxRounds, slice: maxSlice}
}

type outcome struct {
	profile *Profile
	err     error
}

// target is one file to be read at random.
type target struct {
	path  string // for people
	file  layout.File
	bytes int64 // from the start, that hold data
}

// at is the moment when a share of the time has gone.
func (c *call) at(share float64) time.Time {
	return c.began.Add(time.Duration(share * float64(c.Duration)))
}

func (c *call) run(ctx context.Context) (out outcome) {
	defer func() {
		if r := recover(); r != nil {
			out = outcome{err: fmt.Errorf("drive: panic while probing %s: %v", c.Path, r)}
		}
	}()
	p, err := c.probe(ctx)
	if ctx.Err() != nil {
		err = fmt.Errorf("drive: %w", context.Cause(ctx))
	}
	if err != nil {
		return outcome{err: err}
	}
	p.Format, p.Version = profileFormat, profileVersion
	p.Path, p.Seconds = c.Path, time.Since(c.began).Seconds()
	return outcome{profile: p}
}

// probe finds out what Path is.
func (c *call) probe(ctx context.Context) (*Profile, error) {
	info, err := c.FS.Stat(c.Path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("drive: %w", err)
	case !info.IsDir():
		return c.probeFile(ctx)
	}
	store, err := layout.OpenStore(c.Reads, c.Path, layout.Direct)
	switch {
	case errors.Is(err, layout.ErrNotStore):
		return c.probeFolder(ctx)
	case err != nil:
		return nil, err
	}
	defer store.Close() // nothing was written
	return c.probeLanes(ctx, store.Lanes())
}

func (c *call) probeFile(ctx context.Context) (*Profile, error) {
	f, err := c.Reads.Open(c.Path, layout.Direct)
	if err != nil {
		return nil, fmt.Errorf("drive: %w", err)
	}
	defer f.Close() // nothing was written
	return c.measure(ctx, KindFile, target{path: c.Path, file: f, bytes: f.Size()}, c.at(readShare))
}

func (c *call) probeFolder(ctx context.Context) (p *Profile, err error) {
	temp, err := c.writeTemp(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, temp.end()) }()
	return c.measure(ctx, KindFolder, temp.target, c.at(readShare))
}

// measure reads one file until the given moment and draws the conclusions.
func (c *call) measure(ctx context.Context, kind string, t target, until time.Time) (*Profile, error) {
	m, err := newMeter(c, t)
	if err != nil {
		return nil, err
	}
	err = m.run(ctx, until)
	if err = errors.Join(err, m.close()); err != nil {
		return nil, err
	}
	p := &Profile{
		Kind: kind, Path: t.path, FileBytes: t.bytes, Direct: t.file.Direct() != layout.Alignment{},
		Fallback: layout.FallbackReason(t.file), Engine: layout.Engine(t.file), Cells: m.cells(),
	}
	if c.system {
		path := t.path
		if kind == KindFolder {
			path = c.Path
		}
		p.Device = deviceFacts(path)
	}
	p.recommend()
	p.judge()
	return p, nil
}

func (c *call) progress() {
	if c.Progress != nil {
		total := c.at(readShare).Sub(c.began).Milliseconds()
		c.Progress(min(time.Since(c.began).Milliseconds(), total), total)
	}
}
