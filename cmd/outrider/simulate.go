package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"outrider/internal/amount"
	"outrider/internal/runs"
	"outrider/internal/sim"
	"outrider/internal/tables"
	"outrider/trace"
)

type simulateCmd struct {
	Trace     []string      `arg:"" help:"Routing data: one file, the files of one recording, or their folder."`
	Cache     []cacheSize   `help:"Cache size: a share of all experts (25%), a number of experts (192), or bytes (4GiB, needs --record); several make a cell of each. Default: ${default}." default:"25%" placeholder:"SIZE"`
	Runs      []string      `help:"What to compare: ${runs}. Default: ${default}." default:"lru,online,online+spec,optimum" placeholder:"RUN"`
	Ratio     []float64     `help:"Time to read the experts of one layer, one after the other, over the time to compute it (${default})." default:"1" placeholder:"RATIO"`
	Attention float64       `help:"Share of a layer's compute before its routing is known (${default})." default:"0.5" placeholder:"SHARE"`
	Batch     int           `help:"Sequences that run in one pass; their layers take the union of their experts. 1: the tokens as they come in the trace." default:"1" placeholder:"B"`
	Chunk     int           `help:"Prompt tokens of a sequence in one pass, where the trace tells prefill from decode." default:"1" placeholder:"T"`
	Device    []driveFlag   `help:"A drive, such as 3GB/s or 3GB/s+80us (bandwidth and latency of each read); several share each expert. Default: one that reads an expert at a time." placeholder:"DRIVE"`
	Record    amount.Amount `help:"Size of an expert, for --device and for --cache in bytes." placeholder:"BYTES"`
	Warm      amount.Share  `help:"The forecast only learns from this first share of the trace, such as 20%; the rest is replayed, from an empty cache." placeholder:"SHARE" xor:"warm"`
	Skip      amount.Share  `help:"Leave this first share out without learning from it: what --warm is to be compared with." placeholder:"SHARE" xor:"warm"`
	MaxTokens int           `help:"Replay this many tokens only; 0 means all." default:"0" placeholder:"N"`
	Plot      string        `help:"Also draw stall and hits against cache size: .svg or .png." placeholder:"FILE"`
	recording
}

func (simulateCmd) Help() string {
	return "Time is virtual and exact, and the same call gives the same figures; the policies are those that the runtime runs. Stall is the time layers waited for " +
		"experts over the time they computed. A layer computes for 1 unit of time; with --device it is chosen such that an expert read alone takes ratio ÷ top-k of it. " +
		"The trace is held in memory (about 650 bytes a token of 26 layers, top 6): --max-tokens bounds it. docs/simulate.md has the timing model." + recordingHelp + statusHelp
}

// simulation is what --json prints.
type simulation struct {
	Trace simulatedTrace `json:"trace"`
	Cells []*sim.Result  `json:"cells"`
}

type simulatedTrace struct {
	Path    string `json:"path"`
	Model   string `json:"model"`
	Layers  int    `json:"layers"`
	Experts int    `json:"experts"`
	TopK    int    `json:"top_k"`
	Tokens  int    `json:"tokens"` // replayed
}

// cell is one run to be simulated.
type cell struct {
	run     string
	options sim.Options
}

// Run replays a trace in virtual time.
func (c *simulateCmd) Run(ctx context.Context, a *app) error {
	cells, err := c.cells()
	if err != nil {
		return err
	}
	if err := checkPlot(c.Plot); err != nil {
		return err
	}
	limit := c.MaxTokens
	if c.Warm > 0 || c.Skip > 0 { // a share of all there is
		limit = 0
	}
	replayed, err := c.tokens(ctx, a, limit, c.Trace...)
	if err != nil {
		return err
	}
	s := &simulation{Trace: describeTrace(c.Trace, replayed), Cells: make([]*sim.Result, len(cells))}
	if err := simulateAll(ctx, a, replayed, cells, s.Cells); err != nil {
		return err
	}
	s.Trace.Tokens = s.Cells[0].Tokens
	if c.Plot != "" {
		if err := plotSimulation(c.Plot, s); err != nil {
			return err
		}
	}
	return a.print(s, s.writeTo)
}

// simulateAll runs the cells, as many at a time as there are processors.
func simulateAll(ctx context.Context, a *app, t *trace.Trace, cells []cell, results []*sim.Result) error {
	bar := a.progress("simulating", "tokens")
	defer bar.finish()
	total := int64(len(cells)) * int64(t.Len())
	if n := cells[0].options.MaxTokens; n > 0 {
		total = int64(len(cells)) * int64(min(n, t.Len()))
	}
	var done atomic.Int64
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(processors())
	for i, cell := range cells {
		group.Go(func() error {
			o, last := cell.options, 0
			o.Progress = func(tokens int) {
				bar.set(done.Add(int64(tokens-last)), total)
				last = tokens
			}
			result, err := sim.Run(groupCtx, t, cell.run, o)
			results[i] = result
			return err
		})
	}
	err := group.Wait()
	if errors.Is(err, sim.ErrOption) {
		return usageError{message(ctx, err)}
	}
	return err
}

// cells are all combinations, checked before the trace is read.
func (c *simulateCmd) cells() ([]cell, error) {
	switch {
	case c.MaxTokens < 0:
		return nil, usagef("--max-tokens is %d, want 0 (all) or more", c.MaxTokens)
	case !(c.Attention > 0 && c.Attention <= 1):
		return nil, usagef("--attention is %v, want more than 0 to 1", c.Attention)
	case c.Warm == 1 || c.Skip == 1:
		return nil, usagef("--warm and --skip leave nothing to replay, want less than 100%%")
	case c.Batch < 1 || c.Chunk < 1:
		return nil, usagef("--batch is %d and --chunk %d, want 1 or more", c.Batch, c.Chunk)
	case len(c.Runs) == 0 || len(c.Cache) == 0 || len(c.Ratio) == 0:
		return nil, usagef("--runs, --cache and --ratio want a value each")
	case c.Record.Share > 0:
		return nil, usagef("--record is a share, want bytes such as 12MiB")
	}
	for _, run := range c.Runs {
		if _, err := runs.Parse(run); err != nil {
			return nil, usagef("--runs: %v", err)
		}
	}
	inBytes := slices.ContainsFunc(c.Cache, func(size cacheSize) bool { return size.bytes > 0 })
	if c.Record.Bytes == 0 && (inBytes || len(c.Device) > 0) {
		return nil, usagef("--cache in bytes and --device need the size of an expert: give --record, such as --record 12MiB")
	}
	var cells []cell
	for _, size := range c.Cache {
		for _, ratio := range c.Ratio {
			o := sim.Options{
				Ratio: ratio, Attention: c.Attention, Batch: c.Batch, Chunk: c.Chunk, RecordBytes: c.Record.Bytes,
				CacheShare: size.share, CacheExperts: size.experts, CacheBytes: size.bytes,
				MaxTokens: c.MaxTokens, Warm: float64(c.Warm), Skip: float64(c.Skip),
			}
			for _, d := range c.Device {
				o.Drives = append(o.Drives, sim.Drive(d))
			}
			if !(ratio > 0) {
				return nil, usagef("--ratio is %v, want more than 0", ratio)
			}
			if err := o.Validate(); err != nil {
				return nil, usageError{message(context.Background(), err)}
			}
			for _, run := range c.Runs {
				cells = append(cells, cell{run: run, options: o})
			}
		}
	}
	return cells, nil
}

func (s *simulation) writeTo(w io.Writer) {
	s.Trace.writeTo(w)
	g := tables.NewGrid("cache", "ratio", "run", "hits", "stall/compute", "demand/token", "spec/token",
		"useful", "late", "wasted", "displaced", "complete", "recall@k")
	for _, r := range s.Cells {
		g.Add(fmt.Sprintf("%.4g %%", 100*r.CacheShare), fmt.Sprintf("%.4g", r.Ratio), r.Run,
			fmt.Sprintf("%.1f %%", 100*r.Hits), fmt.Sprintf("%.3f", r.StallOverCompute),
			fmt.Sprintf("%.2f", r.DemandReadsPerToken), fmt.Sprintf("%.2f", r.SpeculativeReadsPerToken),
			fmt.Sprint(r.Useful), fmt.Sprint(r.Late), fmt.Sprint(r.Wasted), fmt.Sprint(r.Displaced),
			fmt.Sprintf("%.1f %%", 100*r.LayerCompleteRate), recallText(r.RecallAtK))
	}
	g.Print(w)
}

func recallText(recall float64) string {
	if recall > 0 {
		return fmt.Sprintf("%.3f", recall)
	}
	return "-"
}
