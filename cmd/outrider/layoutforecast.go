package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"time"

	"outrider/internal/amount"
	"outrider/internal/gain"
	"outrider/layout"
	"outrider/layout/drive"
)

type layoutForecastCmd struct {
	Checkpoint string        `arg:"" help:"${checkpoint}"`
	Out        string        `help:"Where the store would lie: a folder, or the name that the store would get in one. The checkpoint's own folder by default." placeholder:"DIR"`
	Probe      []string      `help:"Take depth and block from what \"outrider probe --save\" saved of that folder or its device, instead of a short measurement." placeholder:"FILE" sep:"none"`
	Seconds    float64       `help:"The comparison takes about that long (${default})." default:"10" placeholder:"S"`
	Space      amount.Amount `help:"The temporary store takes about that much at most (${default})." default:"128MiB" placeholder:"BYTES"`
	readingFlags
}

func (layoutForecastCmd) Help() string {
	return "Measures, with a handful of this checkpoint's experts on this drive, what a store would gain. They are packed into a small temporary store, and batches of as many as a token uses of one layer are " +
		"read from it and from the checkpoint in turn, with direct reads, as many at once as suit the drive and their size. The first batches are read once more at the end. The temporary store is removed, also on ^C; a killed process may leave a folder named .outrider-forecast-…. " +
		"Figures of a token count one that finds no expert in memory and foresees none: what a cache holds and a forecast hides comes off in both layouts alike. " +
		"A store pays where the batches of three quarters of the rounds come at least 1.1 times as fast as in place." + statusHelp
}

// Bounds of the short measurement that finds depth and block.
const (
	depthTime  = 3 * time.Second
	depthSpace = 128 << 20
)

// gainForecast is what --json prints.
type gainForecast struct {
	Checkpoint string `json:"checkpoint"`
	Model      string `json:"model"`
	Dir        string `json:"dir"` // where the store would lie
	FreeBytes  *int64 `json:"free_bytes,omitempty"`
	*gain.Result
	Notes []string `json:"notes,omitempty"`
}

// Run measures and tells.
func (c *layoutForecastCmd) Run(ctx context.Context, a *app) (err error) {
	system, err := layout.OpenSystem(layout.SystemOptions{})
	if err != nil {
		return err
	}
	defer func() {
		if !errors.Is(err, drive.ErrNoAnswer) { // Close would wait for the call that hangs
			err = errors.Join(err, system.Close())
		}
	}()
	files := layout.OS()
	cp, err := c.read(files, c.Checkpoint)
	if err != nil {
		return err
	}
	o := gain.Options{Checkpoint: &cp, Reads: system}
	if err := c.bounds(&o); err != nil {
		return err
	}
	if o.Dir, err = c.folder(files, &cp); err != nil {
		return err
	}
	profile, err := c.profile(ctx, a, files, o)
	if err != nil {
		return err
	}
	o.Depth, o.RawDepth, o.BlockBytes = gain.DepthOf(profile, gain.RecordBytes(&cp)), profile.Depth, profile.BlockBytes
	bar := a.progress("comparing", "seconds")
	defer bar.finish()
	o.Progress = func(done, total int64) { bar.set(done/1000, total/1000) }
	result, err := gain.Measure(ctx, o)
	bar.finish()
	if err != nil {
		return err
	}
	f := &gainForecast{Checkpoint: c.Checkpoint, Model: cp.Name, Dir: o.Dir, Result: result, Notes: slices.Concat(cp.Notes, forecastNotes(result, profile))}
	if free, err := files.Free(o.Dir); err == nil {
		f.FreeBytes = &free
	}
	return a.print(f, f.writeTo)
}

// bounds turns flags into bounds of time and space.
func (c *layoutForecastCmd) bounds(o *gain.Options) error {
	switch {
	case c.Space.Share > 0:
		return usagef("--space is bytes, such as 128MiB, not a share")
	case !(c.Seconds > 0 && c.Seconds < math.MaxInt32):
		return usagef("--seconds is %g, want more than 0", c.Seconds)
	}
	o.Duration, o.SpaceBytes, o.Dir = time.Duration(c.Seconds*float64(time.Second)), c.Space.Bytes, "."
	if err := o.Validate(); err != nil {
		return usageError{message(context.Background(), err)}
	}
	return nil
}

// folder is the one in which the store would be made.
func (c *layoutForecastCmd) folder(fsys layout.FS, cp *layout.Checkpoint) (string, error) {
	if c.Out == "" {
		return filepath.Dir(cp.Files[0].Path), nil
	}
	dir := filepath.Clean(c.Out)
	info, err := fsys.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		dir = filepath.Dir(dir)
		if info, err = fsys.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return "", noFolder(dir, c.Out)
		}
	}
	switch {
	case err != nil:
		return "", err
	case !info.IsDir():
		return "", inputf("%s is no folder: name the one in which the store would lie", dir)
	}
	return dir, nil
}

// profile tells the depth and block that suit the drive: as saved, or by a short
// measurement of the checkpoint itself, or of the folder where that is another drive.
func (c *layoutForecastCmd) profile(ctx context.Context, a *app, fsys layout.FS, o gain.Options) (*drive.Profile, error) {
	absolute, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	info, err := fsys.Stat(absolute)
	if err != nil {
		return nil, err
	}
	d := laneDevice{folder: absolute, info: info}
	if len(c.Probe) > 0 {
		profiles, err := loadProfiles(c.Probe)
		if err != nil {
			return nil, err
		}
		return d.find(fsys, profiles)
	}
	path := o.Dir
	largest := slices.MaxFunc(o.Checkpoint.Files, func(x, y layout.CheckpointFile) int { return int(min(max(x.Size-y.Size, -1), 1)) })
	if at, err := fsys.Stat(largest.Path); err == nil && layout.SameDevice(at, info) {
		path = largest.Path
	}
	bar := a.progress("probing", "seconds")
	defer bar.finish()
	p, err := drive.Probe(ctx, drive.Options{
		Path: path, Reads: o.Reads, Duration: depthTime, SpaceBytes: depthSpace, RecordBytes: gain.RecordBytes(o.Checkpoint),
		Progress: func(done, total int64) { bar.set(done/1000, total/1000) },
	})
	if errors.Is(err, drive.ErrSmall) {
		return nil, inputError{err.Error()}
	} else if err != nil {
		return nil, fmt.Errorf("measure the drive: %w", err)
	}
	return p, nil
}

// forecastNotes are what to know before relying on the figures.
func forecastNotes(r *gain.Result, p *drive.Profile) (notes []string) {
	add := func(ok bool, format string, args ...any) {
		if ok {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	for _, arm := range []struct {
		gain.Arm
		name string
	}{{r.InPlace, "in place"}, {r.Store, "in a store"}} {
		add(!arm.Direct, "%s, reads go through the page cache (%s): memory was measured, and not the drive", arm.name, arm.Fallback)
	}
	add(p.Warning != "", "%s", p.Warning)
	add(!r.SameDrive, "the checkpoint is not known to lie on the store's drive: the gain may be that of one drive over the other")
	add(p.Device.Rotational, "the system says that this drive has heads to move: if so, the gain is overstated, since the sample's records lie nearer to each other than a whole store's")
	add(r.Again < 1/steady || r.Again > steady, "the drive has changed while it was measured: the first batches took %.2f times as long when repeated", r.Again)
	return notes
}

// steady is how far a repeated measurement may be off before it is worth a word.
const steady = 1.25
