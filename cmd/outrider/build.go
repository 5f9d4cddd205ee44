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
	"outrider/trace"
)

type buildCmd struct {
	Checkpoint        string     `arg:"" help:"A GGUF file, or any shard of a split one. It stays as it is."`
	Out               string     `required:"" help:"Folder of the store. It must not exist." placeholder:"DIR"`
	Lane              []laneFlag `help:"A file of the store, or a folder for one, on a device of its own; a weight says how much of the store it gets beside the other lanes. Once for each lane; none means one lane in DIR." placeholder:"PATH[:WEIGHT]" sep:"none"`
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
	LaneBytes      []int64  `json:"lane_bytes"`
	Seconds        float64  `json:"seconds"`
	BytesPerSecond float64  `json:"bytes_per_second"` // of the checkpoint's expert bytes
}

// Run builds a store.
func (c *buildCmd) Run(ctx context.Context, a *app) error {
	fsys := layout.OS()
	cp, err := checkpoint.Read(fsys, c.Checkpoint)
	if err != nil {
		return err
	}
	options := layout.PlanOptions{Align: c.Align}
	if options.Lanes, err = c.lanes(fsys); err != nil {
		return err
	}
	if c.Trace != "" {
		if options.Order, err = traceOrder(ctx, a, c.Trace, cp.Shape); err != nil {
			return err
		}
	}
	plan, err := layout.PlanStore(cp, options)
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
	return a.print(s, s.writeTo)
}

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

// announce states size and free space before anything is written.
func (c *buildCmd) announce(a *app, fsys layout.WriteFS, plan *layout.Plan) error {
	a.say("%s: %d layers x %d experts, %s and %s of padding",
		c.Out, plan.Shape.Layers, plan.Shape.Experts, sizeText(plan.DataBytes), bytesText(plan.PaddingBytes))
	for _, lane := range plan.Lanes {
		path := lane.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(c.Out, path)
		}
		folder := filepath.Dir(filepath.Clean(c.Out))
		if filepath.IsAbs(lane.Path) {
			folder = filepath.Dir(lane.Path)
		}
		free, err := fsys.Free(folder)
		switch {
		case err == nil:
			a.say("%s: needs %s, %s has %s free", path, bytesText(lane.Size), folder, bytesText(free))
		case errors.Is(err, fs.ErrNotExist):
			return inputf("the folder %s, in which %s is to lie, does not exist: make it first", folder, path)
		default:
			a.say("%s: needs %s", path, bytesText(lane.Size)) // Build looks again and has the last word
		}
	}
	return nil
}

func (c *buildCmd) summary(cp *layout.Checkpoint, plan *layout.Plan, report *layout.BuildReport, took time.Duration) *buildSummary {
	s := &buildSummary{
		Store: c.Out, ID: report.ID, Model: cp.Name, Experts: report.Records,
		BytesIn: expertBytes(cp), BytesOut: report.DataBytes, PaddingBytes: report.PaddingBytes,
		PaddingPercent: percent(report.PaddingBytes, report.DataBytes), IndexBytes: report.IndexBytes,
		RouterBytes: report.RouterBytes, NoRouters: cp.NoRouters, Align: plan.Align, Order: "index", Seconds: took.Seconds(),
	}
	if plan.Ordered {
		s.Order = "co-activation"
	}
	for _, lane := range plan.Lanes {
		s.Lanes = append(s.Lanes, lane.Path)
		s.LaneBytes = append(s.LaneBytes, lane.Size)
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
	f.add("lanes", "%s", strings.Join(s.Lanes, ", "))
	f.add("took", "%.2f s, %s/s", s.Seconds, bytesText(int64(s.BytesPerSecond)))
	f.writeTo(w)
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

// traceOrder lines up each layer's experts by how often a trace used them together.
func traceOrder(ctx context.Context, a *app, path string, shape layout.Shape) ([][]int32, error) {
	in, err := recording{}.open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close() // nothing was written
	if err := in.NoOrder(); err != nil {
		return nil, err
	}
	if got := in.Header().Shape; !got.SameSize(shape) {
		return nil, inputf("the trace %s is of another model: it has %s, the checkpoint has %s", path, shapeText(got), shapeText(shape))
	}
	history, err := trace.NewHistory(shape)
	if err != nil {
		return nil, err
	}
	stream := a.watch(ctx, in)
	var activation trace.Activation
	for {
		err := stream.Next(&activation)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = history.Add(&activation)
		}
		if err != nil {
			return nil, err
		}
	}
	order := make([][]int32, shape.Layers)
	for l := range order {
		order[l] = layout.CoactivationOrder(shape.Experts, func(x, y int) uint64 {
			return history.Coactivation(l, int32(x), int32(y))
		})
	}
	return order, ctx.Err()
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
