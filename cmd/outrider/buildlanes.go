package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"time"

	"outrider/internal/amount"
	"outrider/layout"
	"outrider/layout/drive"
)

// Bounds of the quick measurement of a lane's device.
const (
	weighTime  = 2 * time.Second
	weighSpace = 256 << 20
)

// Where the weights of lanes come from, as --json names it.
const (
	weightsGiven    = "given"
	weightsEqual    = "equal"
	weightsMeasured = "measured"
	weightsProfiles = "profiles"
)

// prober is drive.Probe, or a stand-in for it.
type prober func(context.Context, drive.Options) (*drive.Profile, error)

// lanes turns flags into lanes: a folder gets a file named after the store.
func (c *buildCmd) lanes(fsys layout.FS) ([]layout.LaneSpec, error) {
	var specs []layout.LaneSpec
	for i, flag := range c.Lane {
		path := flag.path
		if filepath.Base(path) != path {
			abs, err := filepath.Abs(path)
			if err != nil {
				return nil, err
			}
			path = abs
		}
		if info, err := fsys.Stat(path); err == nil && info.IsDir() {
			abs, err := filepath.Abs(path)
			if err != nil {
				return nil, err
			}
			path = filepath.Join(abs, fmt.Sprintf("%s.lane-%d.bin", filepath.Base(filepath.Clean(c.Out)), i))
		}
		specs = append(specs, layout.LaneSpec{Path: path, Weight: flag.weight})
	}
	return specs, nil
}

// checkFlags finds flags that contradict each other.
func (c *buildCmd) checkFlags() error {
	if c.Resume && c.DiscardUnfinished {
		return usagef("--resume and --discard-unfinished say different things of an unfinished build: give one of them")
	}
	return c.checkLanes()
}

func (c *buildCmd) checkLanes() error {
	given := 0
	for _, lane := range c.Lane {
		if lane.weight > 0 {
			given++
		}
	}
	switch many := len(c.Lane) > 1; {
	case many && given > 0 && given < len(c.Lane):
		return usagef("%d of %d lanes have a weight: give every --lane one, or none to have them measured", given, len(c.Lane))
	case c.EqualLanes && len(c.Probe) > 0:
		return usagef("--equal-lanes and --probe say different things of the lanes' weights: give one of them")
	case many && given == 0 && !c.EqualLanes && len(c.Probe) == 0 && c.DryRun:
		return usagef("--dry-run measures no lanes, since that would write: give every --lane a weight, --equal-lanes or --probe")
	case many && given == 0 && !c.EqualLanes && len(c.Probe) == 0 && c.Resume:
		return usagef("--resume needs the weights of the build that it goes on with, and another measurement would give others: give every --lane the weight that was told then, --equal-lanes or --probe")
	case (c.EqualLanes || len(c.Probe) > 0 && !c.DryRun) && (!many || given > 0):
		return usagef("--equal-lanes and --probe are for two or more lanes without weights")
	case c.Copies != amount.Amount{} && !many:
		return usagef("--copies needs at least two lanes, since a copy lies on another lane than its original: name them with --lane")
	}
	return nil
}

// laneFolder is the folder in which a lane is made.
func (c *buildCmd) laneFolder(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Dir(path)
	}
	return filepath.Dir(filepath.Clean(c.Out))
}

// weigh gives lanes without weights the bandwidths of their devices, in MB/s, and
// says where the weights come from. Lanes on one device share its bandwidth.
func (c *buildCmd) weigh(ctx context.Context, a *app, fsys layout.FS, specs []layout.LaneSpec, probe prober) (from string, err error) {
	switch {
	case len(specs) < 2:
		return "", nil
	case c.EqualLanes:
		from = weightsEqual
	case specs[0].Weight > 0:
		from = weightsGiven
	case len(c.Probe) > 0:
		from = weightsProfiles
	default:
		from = weightsMeasured
	}
	devices, err := c.devices(fsys, specs)
	if err != nil {
		return "", err
	}
	for _, d := range devices {
		if len(d.lanes) > 1 {
			a.warn(d.note(specs))
		}
	}
	if from == weightsEqual || from == weightsGiven {
		return from, nil
	}
	profiles, err := loadProfiles(c.Probe)
	if err != nil {
		return "", err
	}
	for _, d := range devices {
		var p *drive.Profile
		if from == weightsProfiles {
			p, err = d.find(fsys, profiles)
		} else {
			p, err = d.measure(ctx, probe)
		}
		if err != nil {
			return "", err
		}
		d.weigh(a, p, specs)
	}
	return from, nil
}

// laneDevice is a device, and the lanes that lie on it.
type laneDevice struct {
	folder string // of the first of them
	info   fs.FileInfo
	lanes  []int
}

// devices groups lanes by the device of their folder.
func (c *buildCmd) devices(fsys layout.FS, specs []layout.LaneSpec) ([]*laneDevice, error) {
	var out []*laneDevice
lanes:
	for i, spec := range specs {
		folder, err := filepath.Abs(c.laneFolder(spec.Path))
		if err != nil {
			return nil, err
		}
		info, err := fsys.Stat(folder)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, noFolder(folder, spec.Path)
		} else if err != nil {
			return nil, err
		}
		for _, d := range out {
			if d.folder == folder || layout.SameDevice(d.info, info) {
				d.lanes = append(d.lanes, i)
				continue lanes
			}
		}
		out = append(out, &laneDevice{folder: folder, info: info, lanes: []int{i}})
	}
	return out, nil
}

func noFolder(folder, path string) error {
	return inputf("the folder %s, in which %s is to lie, does not exist: make it first", folder, path)
}

func (d *laneDevice) note(specs []layout.LaneSpec) string {
	text := specs[d.lanes[0]].Path
	for _, i := range d.lanes[1:] {
		text += " and " + specs[i].Path
	}
	return text + " lie on one device: more than one lane there gains nothing, and a copy there does not outlive it"
}

func (d *laneDevice) measure(ctx context.Context, probe prober) (*drive.Profile, error) {
	p, err := probe(ctx, drive.Options{Path: d.folder, Duration: weighTime, SpaceBytes: weighSpace})
	if err != nil {
		return nil, fmt.Errorf("measure the lane's device: %w: give every --lane a weight, or --equal-lanes", err)
	}
	return p, nil
}

// find is the saved profile of this folder, or else of its device.
func (d *laneDevice) find(fsys layout.FS, profiles []drive.Profile) (*drive.Profile, error) {
	var sameDevice *drive.Profile
	for i := range profiles {
		p := &profiles[i]
		path, err := filepath.Abs(p.Path)
		if err != nil {
			return nil, err
		}
		if path == d.folder || filepath.Dir(path) == d.folder {
			return p, nil
		}
		if info, err := fsys.Stat(path); err == nil && sameDevice == nil && layout.SameDevice(info, d.info) {
			sameDevice = p
		}
	}
	if sameDevice == nil {
		return nil, inputf("no profile of --probe is of the folder %s or of its device: make one with outrider probe %s --save FILE", d.folder, d.folder)
	}
	return sameDevice, nil
}

// weigh gives each lane of the device its part of the bandwidth, in whole MB/s.
func (d *laneDevice) weigh(a *app, p *drive.Profile, specs []layout.LaneSpec) {
	if p.Warning != "" {
		a.warn(d.folder + ": " + p.Warning)
	}
	for _, i := range d.lanes {
		specs[i].Weight = max(1, math.Round(p.BytesPerSecond/float64(len(d.lanes))/1e6))
		a.say("%s: weight %.0f, from %s/s of %s", specs[i].Path, specs[i].Weight, bytesText(int64(p.BytesPerSecond)), d.folder)
	}
}

// loadProfiles reads saved profiles, those of each lane in place of a store's.
func loadProfiles(paths []string) (out []drive.Profile, err error) {
	for _, path := range paths {
		p, err := drive.Load(path)
		if errors.Is(err, drive.ErrNotProfile) || errors.Is(err, drive.ErrVersion) {
			return nil, inputf("--probe: %s", message(context.Background(), err))
		}
		if err != nil {
			return nil, err
		}
		if len(p.Lanes) > 0 {
			out = append(out, p.Lanes...)
			continue
		}
		out = append(out, *p)
	}
	return out, nil
}
