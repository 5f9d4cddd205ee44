package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"outrider/internal/amount"
	"outrider/layout"
	"outrider/layout/drive"
)

type buildCmd struct {
	Checkpoint        string        `arg:"" help:"${checkpoint} It stays as it is."`
	Out               string        `required:"" help:"Folder of the store. It must not exist." placeholder:"DIR"`
	DryRun            bool          `help:"Only tell what would be built, what it takes of each device, and about how long. Nothing is written; what holds the checkpoint is measured by reading, for other devices give --probe."`
	Resume            bool          `help:"Go on with what a killed build of the same checkpoint and options left behind; with nothing there, begin anew. If this call is interrupted, it leaves that to go on with."`
	Lane              []laneFlag    `help:"A file of the store, or a folder for one, on a device of its own; a weight says how much of the store it gets beside the other lanes. Once for each lane; none means one lane in DIR. Several without any weight are weighed by a short measurement." placeholder:"PATH[:WEIGHT]" sep:"none"`
	Probe             []string      `help:"Weigh the lanes by what \"outrider probe --save\" saved of their folders or devices, instead of measuring; --dry-run takes its times from there. Once for each file." placeholder:"FILE" sep:"none"`
	EqualLanes        bool          `help:"Weigh all lanes alike, without measuring."`
	Copies            amount.Amount `help:"Keep second copies of the hottest records on another lane, in so much space: a share of the experts' bytes such as 5%, or bytes such as 2GiB. Hot is what --trace uses often; without it copies spread evenly over the layers." placeholder:"SPACE"`
	Trace             string        `help:"Put experts that this routing trace uses together beside each other." placeholder:"FILE"`
	Align             int64         `help:"Alignment of records in bytes, a power of two from 512 to 2 MiB; 0 means the largest up to 4096 that pads at most 1 %." default:"0" placeholder:"N"`
	DiscardUnfinished bool          `help:"Remove what a killed build of the same store left behind."`
	readingFlags
}

func (buildCmd) Help() string {
	return "Copies the experts of a checkpoint, unchanged, into execution-order stripes, reads back what it wrote, and only " +
		"then gives the store its name. Interrupted or failed it leaves nothing; killed, a part that --resume goes on with." + statusHelp
}

// Run builds a store, or tells what it would build.
func (c *buildCmd) Run(ctx context.Context, a *app) error {
	if err := c.checkFlags(); err != nil {
		return err
	}
	fsys := layout.OS()
	cp, err := c.read(fsys, c.Checkpoint)
	if err != nil {
		return err
	}
	if !c.DryRun { // which prints them itself
		a.warn(cp.Notes...)
	}
	plan, weights, err := c.plan(ctx, a, fsys, &cp)
	if err != nil {
		return err
	}
	if err := c.checkFolders(fsys, plan); err != nil {
		return err
	}
	options := layout.BuildOptions{
		FS: fsys, Dir: c.Out, Plan: plan, Checkpoint: &cp, DiscardUnfinished: c.DiscardUnfinished, Resume: c.Resume,
	}
	target, err := layout.CheckTarget(options)
	if c.DryRun && target != nil {
		if err := c.tell(ctx, a, fsys, options, target); err != nil {
			return err
		}
		return unfinished(err)
	}
	if target != nil {
		c.announce(a, plan, target)
	}
	if err != nil {
		return unfinished(err)
	}
	return c.build(ctx, a, options, weights)
}

// build copies, and tells what that came to.
func (c *buildCmd) build(ctx context.Context, a *app, options layout.BuildOptions, weights string) error {
	began, bar := a.now(), a.progress("building", inBytes)
	defer bar.finish()
	options.Progress = bar.set
	report, err := layout.Build(ctx, options)
	bar.finish()
	if err != nil {
		if c.Resume && ctx.Err() != nil {
			a.warn("what was built so far is kept: the same command goes on with it, --discard-unfinished removes it")
		}
		return unfinished(err)
	}
	s := c.summary(options.Checkpoint, options.Plan, report, a.now().Sub(began))
	s.WeightsFrom = weights
	return a.print(s, s.writeTo)
}

// unfinished names the flags that do what the error proposes.
func unfinished(err error) error {
	if errors.Is(err, layout.ErrUnfinished) {
		return fmt.Errorf("%w (--resume, --discard-unfinished)", err)
	}
	return err
}

// plan works out the store. It also returns where the lanes' weights come from.
func (c *buildCmd) plan(ctx context.Context, a *app, fsys layout.WriteFS, cp *layout.Checkpoint) (*layout.Plan, string, error) {
	options := layout.PlanOptions{Align: c.Align}
	if c.Copies != (amount.Amount{}) {
		options.Copies.Bytes = c.Copies.Of(expertBytes(cp))
	}
	var err error
	if options.Lanes, err = c.lanes(fsys); err != nil {
		return nil, "", err
	}
	if c.Trace != "" {
		history, err := readHistory(ctx, a, c.Trace, cp.Shape)
		if err != nil {
			return nil, "", err
		}
		options.Order, options.Copies.Heat = togetherness(history), heat(history)
	}
	weights, err := c.weigh(ctx, a, fsys, options.Lanes, drive.Probe)
	if err != nil {
		return nil, "", err
	}
	plan, err := layout.PlanStore(*cp, options)
	return plan, weights, err
}

// checkFolders names the first folder that is missing.
func (c *buildCmd) checkFolders(fsys layout.FS, plan *layout.Plan) error {
	for _, lane := range plan.Lanes {
		folder, path := c.laneFolder(lane.Path), lane.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(c.Out, path)
		}
		if _, err := fsys.Stat(folder); errors.Is(err, fs.ErrNotExist) {
			return noFolder(folder, path)
		}
	}
	return nil
}

// announce states size and free space before anything is written.
func (c *buildCmd) announce(a *app, plan *layout.Plan, target *layout.TargetCheck) {
	a.say("%s: %d layers x %d experts, %s and %s of padding",
		c.Out, plan.Shape.Layers, plan.Shape.Experts, sizeText(plan.DataBytes), bytesText(plan.PaddingBytes))
	for _, d := range target.Devices {
		free := ""
		if d.FreeBytes >= 0 {
			free = fmt.Sprintf(", %s has %s free", d.Dir, bytesText(d.FreeBytes))
		}
		for _, f := range d.Files {
			if f.Path == filepath.Clean(c.Out) {
				continue // manifest, index and routers
			}
			a.say("%s: needs %s%s", f.Path, bytesText(f.Bytes), free)
			if f.Bytes == 0 {
				a.say("%s: gets nothing: a piece or record there would take longer than all of it on the fastest lane, or there are fewer records than lanes", f.Path)
			}
		}
	}
}
