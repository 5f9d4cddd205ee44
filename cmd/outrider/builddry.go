package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"outrider/internal/tables"
	"outrider/layout"
	"outrider/layout/drive"
)

// dryTime is how long the reading of a checkpoint's device is measured.
const dryTime = 2 * time.Second

// plannedStore is what --dry-run --json prints.
type plannedStore struct {
	Store        string          `json:"store"`
	Model        string          `json:"model"`
	Layers       int             `json:"layers"`
	Experts      int             `json:"experts"` // of each layer
	BytesIn      int64           `json:"bytes_in"`
	BytesOut     int64           `json:"bytes_out"`
	PaddingBytes int64           `json:"padding_bytes"`
	CopyBytes    int64           `json:"copy_bytes"`
	NoRouters    string          `json:"no_routers,omitempty"`
	Align        int64           `json:"align"`
	Ordered      bool            `json:"ordered"` // by a trace
	Devices      []plannedDevice `json:"devices"`
	// Seconds is about how long building takes if devices write as fast as they read;
	// missing if the rate of one is not known.
	Seconds    *float64 `json:"seconds,omitempty"`
	Unfinished string   `json:"unfinished,omitempty"` // what a killed build left
	Notes      []string `json:"notes,omitempty"`
}

// plannedDevice is one device that a build writes to or reads from.
type plannedDevice struct {
	Dir            string        `json:"dir"`
	Files          []plannedFile `json:"files"`
	NeedBytes      int64         `json:"need_bytes"` // still to be allocated
	FreeBytes      *int64        `json:"free_bytes,omitempty"`
	WriteBytes     int64         `json:"write_bytes"`
	ReadBytes      int64         `json:"read_bytes"`
	BytesPerSecond *float64      `json:"bytes_per_second,omitempty"` // of reads; missing if not known
}

type plannedFile struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

// tell prints what would be built.
func (c *buildCmd) tell(ctx context.Context, a *app, fsys layout.FS, o layout.BuildOptions, target *layout.TargetCheck) error {
	p := &plannedStore{
		Store: c.Out, Model: o.Checkpoint.Name, Layers: o.Plan.Shape.Layers, Experts: o.Plan.Shape.Experts,
		BytesIn: expertBytes(o.Checkpoint), BytesOut: o.Plan.DataBytes, PaddingBytes: o.Plan.PaddingBytes, CopyBytes: o.Plan.CopyBytes,
		NoRouters: o.Checkpoint.NoRouters, Align: o.Plan.Align, Ordered: o.Plan.Ordered, Unfinished: target.Unfinished, Notes: slices.Clone(o.Checkpoint.Notes),
	}
	rates, err := c.rates(ctx, fsys, o.Checkpoint, target, p)
	if err != nil {
		return err
	}
	known := true
	for i := range target.Devices {
		d := planned(&target.Devices[i])
		if rate := rates[&target.Devices[i]]; rate > 0 {
			d.BytesPerSecond = &rate
		} else {
			known = false
		}
		p.Devices = append(p.Devices, d)
	}
	if known {
		seconds := target.Seconds(func(d *layout.TargetDevice) float64 { return rates[d] })
		p.Seconds = &seconds
	}
	return a.print(p, p.writeTo)
}

func planned(d *layout.TargetDevice) plannedDevice {
	out := plannedDevice{Dir: d.Dir, Files: []plannedFile{}, NeedBytes: d.NeedBytes, WriteBytes: d.WriteBytes, ReadBytes: d.ReadBytes}
	if d.FreeBytes >= 0 {
		out.FreeBytes = &d.FreeBytes
	}
	for _, f := range d.Files {
		out.Files = append(out.Files, plannedFile(f))
	}
	return out
}

// rates finds out how fast each device reads: as saved, or by reading the
// checkpoint. Devices whose rate cannot be known without writing are left out.
func (c *buildCmd) rates(ctx context.Context, fsys layout.FS, cp *layout.Checkpoint, target *layout.TargetCheck, p *plannedStore) (map[*layout.TargetDevice]float64, error) {
	profiles, err := loadProfiles(c.Probe)
	if err != nil {
		return nil, err
	}
	rates := map[*layout.TargetDevice]float64{}
	for i := range target.Devices {
		d := &target.Devices[i]
		profile, err := readingProfile(ctx, fsys, cp, d.Dir, profiles)
		switch {
		case errors.As(err, new(inputError)), errors.Is(err, drive.ErrSmall):
			p.Notes = append(p.Notes, fmt.Sprintf("how fast the device of %s is was not measured: give --probe FILE, from outrider probe %s --save FILE", d.Dir, d.Dir))
		case err != nil:
			return nil, err
		default:
			rates[d] = profile.BytesPerSecond
			if profile.Warning != "" {
				p.Notes = append(p.Notes, d.Dir+": "+profile.Warning)
			}
		}
	}
	return rates, nil
}

// readingProfile is the profile of a folder's device: a saved one, or a short
// measurement of a file of the checkpoint there. An inputError means that there is
// neither.
func readingProfile(ctx context.Context, fsys layout.FS, cp *layout.Checkpoint, dir string, profiles []drive.Profile) (*drive.Profile, error) {
	folder, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	info, err := fsys.Stat(folder)
	if err != nil {
		return nil, err
	}
	if len(profiles) > 0 {
		return (&laneDevice{folder: folder, info: info}).find(fsys, profiles)
	}
	largest := layout.CheckpointFile{}
	for _, f := range cp.Files {
		if at, err := fsys.Stat(f.Path); err == nil && layout.SameDevice(at, info) && f.Size > largest.Size {
			largest = f
		}
	}
	if largest.Path == "" {
		return nil, inputf("no file of the checkpoint lies on the device of %s", dir)
	}
	return drive.Probe(ctx, drive.Options{Path: largest.Path, Duration: dryTime})
}

func (p *plannedStore) writeTo(w io.Writer) {
	var f tables.Fields
	f.Add("store", "%s, not written: this is a dry run", p.Store)
	f.Add("model", "%s, %d layers x %d experts", p.Model, p.Layers, p.Experts)
	f.Add("experts", "%s in, and as many out", sizeText(p.BytesIn))
	f.Add("padding", "%d bytes, %.2f %%, alignment %d", p.PaddingBytes, percent(p.PaddingBytes, p.BytesOut), p.Align)
	if p.CopyBytes > 0 {
		f.Add("copies", "%s", sizeText(p.CopyBytes))
	}
	if p.NoRouters != "" {
		f.Add("routers", "%s", routersText(0, p.NoRouters))
	}
	if p.Ordered {
		f.Add("order", "by co-activation")
	}
	if p.Unfinished != "" {
		f.Add("unfinished", "a killed build left %s: --resume goes on with it, --discard-unfinished removes it", p.Unfinished)
	}
	f.Add("would take", "%s", p.timeText())
	for _, note := range p.Notes {
		f.Add("note", "%s", note)
	}
	f.Print(w)
	fmt.Fprintln(w)
	g := tables.NewGrid("device of", "file", "bytes", "still needs", "free", "reads", "rate")
	for _, d := range p.Devices {
		d.writeTo(g)
	}
	g.Print(w)
}

func (d plannedDevice) writeTo(g *tables.Grid) {
	free, rate := "-", "-"
	if d.FreeBytes != nil {
		free = bytesText(*d.FreeBytes)
	}
	if d.BytesPerSecond != nil {
		rate = bytesText(int64(*d.BytesPerSecond)) + "/s"
	}
	g.Add(d.Dir, "", "", bytesText(d.NeedBytes), free, bytesText(d.ReadBytes), rate)
	for _, f := range d.Files {
		g.Add("", f.Path, fmt.Sprint(f.Bytes), "", "", "", "")
	}
}

// timeText is about how long building takes.
func (p *plannedStore) timeText() string {
	if p.Seconds == nil {
		return "a time that is not known"
	}
	return fmt.Sprintf("about %.0f s, if devices write as fast as they read", max(1, *p.Seconds))
}
