package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/layout/drive"
)

type buildCmd struct {
	Checkpoint        string     `arg:"" help:"A GGUF file, or any shard of a split one. It stays as it is."`
	Out               string     `required:"" help:"Folder of the store. It must not exist." placeholder:"DIR"`
	Lane              []laneFlag `help:"A file of the store, or a folder for one, on a device of its own; a weight says how much of the store it gets beside the other lanes. Once for each lane; none means one lane in DIR. Several without any weight are weighed by a short measurement." placeholder:"PATH[:WEIGHT]" sep:"none"`
	Probe             []string   `help:"Weigh the lanes by what \"outrider probe --save\" saved of their folders or devices, instead of measuring. Once for each file." placeholder:"FILE" sep:"none"`
	EqualLanes        bool       `help:"Weigh all lanes alike, without measuring."`
	Copies            amount     `help:"Keep second copies of the hottest records on another lane, in so much space: a share of the experts' bytes such as 5%, or bytes such as 2GiB. Hot is what --trace uses often; without it copies spread evenly over the layers." placeholder:"SPACE"`
	Trace             string     `help:"Put experts that this routing trace uses together beside each other." placeholder:"FILE"`
	Align             int64      `help:"Alignment of records in bytes, a power of two from 512 to 2 MiB; 0 means the largest up to 4096 that pads at most 1 %." default:"0" placeholder:"N"`
	DiscardUnfinished bool       `help:"Remove what a killed build of the same store left behind."`
}

func (buildCmd) Help() string {
	return "Copies the experts of a checkpoint, unchanged, into execution-order stripes, reads back what it wrote, and only " +
		"then gives the store its name. Interrupted or failed it leaves nothing." + statusHelp
}

// buildSummary is what --json prints.
type buildSummary struct {
	Store          string   `json:"store"`
	ID             string   `json:"id"`
	Model          string   `json:"model"`
	Experts        int      `json:"experts"` // records, over all layers
	BytesIn        int64    `json:"bytes_in"`
	BytesOut       int64    `json:"bytes_out"`
	PaddingBytes   int64    `json:"padding_bytes"`
	PaddingPercent float64  `json:"padding_percent"`
	IndexBytes     int64    `json:"index_bytes"`
	RouterBytes    int64    `json:"router_bytes"`         // of the file of router matrices
	NoRouters      string   `json:"no_routers,omitempty"` // why there is none
	Align          int64    `json:"align"`
	Order          string   `json:"order"`
	Lanes          []string `json:"lanes"`
	LaneBytes      []int64  `json:"lane_bytes"` // 0: it gets nothing, it is too slow beside the others
	// LaneWeights and where they come from: "given", "equal", "measured" or
	// "profiles"; empty with one lane.
	LaneWeights []float64 `json:"lane_weights"`
	WeightsFrom string    `json:"weights_from,omitempty"`
	// Copies are none unless asked for. Their heat comes from the "trace", or is "even".
	CopiedRecords int     `json:"copied_records"`
	CopyBytes     int64   `json:"copy_bytes"` // with padding and index
	CopyHeat      string  `json:"copy_heat,omitempty"`
	LaneCopyBytes []int64 `json:"lane_copy_bytes"` // beside each lane

	Seconds        float64 `json:"seconds"`
	BytesPerSecond float64 `json:"bytes_per_second"` // of the checkpoint's expert bytes
}

// Run builds a store.
func (c *buildCmd) Run(ctx context.Context, a *app) error {
	if err := c.checkLanes(); err != nil {
		return err
	}
	fsys := layout.OS()
	cp, err := checkpoint.Read(fsys, c.Checkpoint)
	if err != nil {
		return err
	}
	plan, weights, err := c.plan(ctx, a, fsys, &cp)
	if err != nil {
		return err
	}
	if err := c.announce(a, fsys, plan); err != nil {
		return err
	}
	began, bar := a.now(), a.progress("building", inBytes)
	defer bar.finish()
	report, err := layout.Build(ctx, layout.BuildOptions{
		FS: fsys, Dir: c.Out, Plan: plan, Checkpoint: &cp, Progress: bar.set, DiscardUnfinished: c.DiscardUnfinished,
	})
	if errors.Is(err, layout.ErrUnfinished) && !c.DiscardUnfinished {
		return fmt.Errorf("%w; --discard-unfinished does that", err)
	}
	if err != nil {
		return err
	}
	bar.finish()
	s := c.summary(&cp, plan, report, a.now().Sub(began))
	s.WeightsFrom = weights
	return a.print(s, s.writeTo)
}

// plan works out the store. It also returns where the lanes' weights come from.
func (c *buildCmd) plan(ctx context.Context, a *app, fsys layout.WriteFS, cp *layout.Checkpoint) (*layout.Plan, string, error) {
	options := layout.PlanOptions{Align: c.Align}
	if c.Copies != (amount{}) {
		options.Copies.Bytes = c.Copies.of(expertBytes(cp))
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

// announce states size and free space before anything is written.
func (c *buildCmd) announce(a *app, fsys layout.WriteFS, plan *layout.Plan) error {
	a.say("%s: %d layers x %d experts, %s and %s of padding",
		c.Out, plan.Shape.Layers, plan.Shape.Experts, sizeText(plan.DataBytes), bytesText(plan.PaddingBytes))
	for _, lane := range plan.Lanes {
		if err := c.announceFile(a, fsys, lane.Path, lane.Size); err != nil {
			return err
		}
		if lane.Size == 0 {
			a.say("%s: gets nothing: a piece or record there would take longer than all of it on the fastest lane, or there are fewer records than lanes", lane.Path)
		}
		if lane.CopySize > 0 {
			if err := c.announceFile(a, fsys, lane.Path+".copies", lane.CopySize); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *buildCmd) announceFile(a *app, fsys layout.WriteFS, name string, size int64) error {
	path, folder := name, c.laneFolder(name)
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.Out, path)
	}
	free, err := fsys.Free(folder)
	switch {
	case err == nil:
		a.say("%s: needs %s, %s has %s free", path, bytesText(size), folder, bytesText(free))
	case errors.Is(err, fs.ErrNotExist):
		return noFolder(folder, path)
	default:
		a.say("%s: needs %s", path, bytesText(size)) // Build looks again and has the last word
	}
	return nil
}

func (c *buildCmd) summary(cp *layout.Checkpoint, plan *layout.Plan, report *layout.BuildReport, took time.Duration) *buildSummary {
	s := &buildSummary{
		Store: c.Out, ID: report.ID, Model: cp.Name, Experts: report.Records,
		BytesIn: expertBytes(cp), BytesOut: report.DataBytes, PaddingBytes: report.PaddingBytes,
		PaddingPercent: percent(report.PaddingBytes, report.DataBytes), IndexBytes: report.IndexBytes,
		RouterBytes: report.RouterBytes, NoRouters: cp.NoRouters, Align: plan.Align, Order: "index", Seconds: took.Seconds(),
		CopiedRecords: report.CopiedRecords, CopyBytes: report.CopyBytes,
	}
	if plan.Ordered {
		s.Order = "co-activation"
	}
	for _, lane := range plan.Lanes {
		s.Lanes = append(s.Lanes, lane.Path)
		s.LaneBytes = append(s.LaneBytes, lane.Size)
		s.LaneWeights = append(s.LaneWeights, lane.Weight)
		s.LaneCopyBytes = append(s.LaneCopyBytes, lane.CopySize)
	}
	if s.CopiedRecords > 0 {
		s.CopyHeat = "even"
		if c.Trace != "" {
			s.CopyHeat = "trace"
		}
	}
	if took > 0 {
		s.BytesPerSecond = float64(s.BytesIn) / took.Seconds()
	}
	return s
}

// expertBytes counts the checkpoint's side independently of the plan.
func expertBytes(cp *layout.Checkpoint) int64 {
	var total int64
	for i := range cp.Layers {
		for j := range cp.Layers[i].Tensors {
			for e := range cp.Shape.Experts {
				total += cp.Layers[i].Tensors[j].Span(e).Bytes
			}
		}
	}
	return total
}

func (s *buildSummary) writeTo(w io.Writer) {
	equal := "equal"
	if s.BytesIn != s.BytesOut {
		equal = "NOT equal"
	}
	var f fields
	f.add("store", "%s (%s)", s.Store, s.ID)
	f.add("experts", "%d", s.Experts)
	f.add("bytes in", "%d", s.BytesIn)
	f.add("bytes out", "%d, %s, read back and checked", s.BytesOut, equal)
	f.add("padding", "%d bytes, %.2f %%, alignment %d", s.PaddingBytes, s.PaddingPercent, s.Align)
	f.add("index", "%d bytes", s.IndexBytes)
	f.add("routers", "%s", routersText(s.RouterBytes, s.NoRouters))
	f.add("order", "%s", s.Order)
	f.add("lanes", "%s", s.lanesText())
	f.add("copies", "%s", s.copiesText())
	f.add("took", "%.2f s, %s/s", s.Seconds, bytesText(int64(s.BytesPerSecond)))
	f.writeTo(w)
}

// lanesText names the lanes, with their shares if there are several.
func (s *buildSummary) lanesText() string {
	if len(s.Lanes) < 2 {
		return strings.Join(s.Lanes, ", ")
	}
	var lanes []string
	for i, lane := range s.Lanes {
		share := "nothing"
		if s.LaneBytes[i] > 0 {
			share = fmt.Sprintf("%.1f %%", percent(s.LaneBytes[i], s.BytesOut+s.PaddingBytes))
		}
		lanes = append(lanes, fmt.Sprintf("%s (%s)", lane, share))
	}
	return fmt.Sprintf("%s; weights %s", strings.Join(lanes, ", "), s.WeightsFrom)
}

// copiesText is a line on the second copies, empty without any.
func (s *buildSummary) copiesText() string {
	if s.CopiedRecords == 0 {
		return ""
	}
	which := "the hottest of the trace"
	if s.CopyHeat == "even" {
		which = "spread evenly over the layers: give --trace to copy the hottest"
	}
	return fmt.Sprintf("%d of %d records on a second lane, %s, %s", s.CopiedRecords, s.Experts, sizeText(s.CopyBytes), which)
}

// routersText is a line on the file of router matrices.
func routersText(size int64, missing string) string {
	switch {
	case size > 0:
		return fmt.Sprintf("%d bytes, for look-ahead", size)
	case missing != "":
		return "none, so no look-ahead: " + missing
	}
	return "none, so no look-ahead"
}

func shapeText(s layout.Shape) string {
	text := fmt.Sprintf("%d layers x %d experts, top %d", s.Layers, s.Experts, s.TopK)
	if blocks := blocksText(s); blocks != "" {
		text += ", blocks " + blocks
	}
	return text
}

// blocksText lists the model's own numbers of the layers as ranges, and is empty
// where they are 0, 1, ….
func blocksText(s layout.Shape) string {
	var ranges []string
	for l := 0; l < s.Layers; {
		end := l + 1
		for end < s.Layers && s.LayerID(end) == s.LayerID(end-1)+1 {
			end++
		}
		ranges = append(ranges, span(s.LayerID(l), s.LayerID(end-1)))
		l = end
	}
	if len(ranges) == 1 && s.LayerID(0) == 0 {
		return ""
	}
	return strings.Join(ranges, " ")
}
