package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"outrider/internal/sim"
	"outrider/trace"
)

type simulateCmd struct {
	Trace     string    `arg:"" help:"A trace: binary or JSON lines, plain, gzip or zstd."`
	Cache     []share   `help:"Cache size as a share of all experts of the model, such as 25% (${default}); several make a table of each." default:"25%" placeholder:"SHARE"`
	Runs      []string  `help:"What to compare: lru, lfu, optimum (Belady's, a bound); frequency, recency, transition, online, each also with +spec for speculative reads; online+next (a bound). Default: ${default}." default:"lru,online,online+spec,optimum" placeholder:"RUN"`
	Ratio     []float64 `help:"Time to read the experts of one layer over the time to compute it (${default})."  default:"1" placeholder:"RATIO"`
	MaxTokens int       `help:"Replay this many tokens only; 0 means all." default:"0" placeholder:"N"`
}

func (simulateCmd) Help() string {
	return "Time is virtual and exact; the policies are those that the runtime runs. The whole trace is held in memory: " +
		"--max-tokens bounds it. Stall is the time layers waited for experts over the time they computed." + statusHelp
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

// Run replays a trace.
func (c *simulateCmd) Run(ctx context.Context, a *app) error {
	cells, err := c.cells()
	if err != nil {
		return err
	}
	replayed, err := c.read(ctx)
	if err != nil {
		return err
	}
	shape := replayed.Header.Shape
	s := &simulation{Trace: simulatedTrace{
		Path: c.Trace, Model: replayed.Header.Model,
		Layers: shape.Layers, Experts: shape.Experts, TopK: shape.TopK, Tokens: replayed.Len(),
	}}
	bar := a.progress("simulating", false)
	defer bar.finish()
	for i, cell := range cells {
		bar.set(int64(i), int64(len(cells)))
		result, err := sim.Run(ctx, replayed, cell.run, cell.options)
		if errors.Is(err, sim.ErrOption) {
			return usageError{message(ctx, err)}
		}
		if err != nil {
			return err
		}
		s.Cells = append(s.Cells, result)
	}
	bar.finish()
	return a.print(s, s.writeTo)
}

// cells are all combinations, checked before the trace is read.
func (c *simulateCmd) cells() ([]cell, error) {
	if c.MaxTokens < 0 {
		return nil, usagef("--max-tokens is %d, want 0 (all) or more", c.MaxTokens)
	}
	for _, run := range c.Runs {
		if !knownRun(run) {
			return nil, usagef("--runs: no run is called %q: choose from %s", run, strings.Join(sim.Runs(), ", "))
		}
	}
	var cells []cell
	for _, size := range c.Cache {
		for _, ratio := range c.Ratio {
			o := sim.Options{CacheShare: float64(size), Ratio: ratio, MaxTokens: c.MaxTokens}
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

func knownRun(name string) bool {
	for _, known := range sim.Runs() {
		if name == known {
			return true
		}
	}
	return false
}

func (c *simulateCmd) read(ctx context.Context) (*trace.Trace, error) {
	file, err := trace.OpenFile(c.Trace)
	if err != nil {
		return nil, err
	}
	defer file.Close() // nothing was written
	t, err := trace.ReadAll(&stoppable{Stream: file, ctx: ctx}, c.MaxTokens)
	var torn *trace.TornError
	switch {
	case errors.As(err, &torn) && torn.Tokens > 0:
		return nil, fmt.Errorf("%w; replay those with --max-tokens %d", err, torn.Tokens)
	case err != nil:
		return nil, err
	case t.Len() == 0:
		return nil, inputf("the trace %s holds no tokens", c.Trace)
	}
	return t, nil
}

func (s *simulation) writeTo(w io.Writer) {
	t := s.Trace
	fmt.Fprintf(w, "%s: %s, %d layers x %d experts, top %d, %d tokens\n\n", t.Path, t.Model, t.Layers, t.Experts, t.TopK, t.Tokens)
	g := newGrid("cache", "ratio", "run", "hits", "stall/compute", "demand/token", "spec/token",
		"useful", "late", "wasted", "displaced", "complete", "recall@k")
	for _, r := range s.Cells {
		recall := "-"
		if r.RecallAtK > 0 {
			recall = fmt.Sprintf("%.3f", r.RecallAtK)
		}
		g.add(fmt.Sprintf("%.4g %%", 100*r.CacheShare), fmt.Sprintf("%.4g", r.Ratio), r.Run,
			fmt.Sprintf("%.1f %%", 100*r.Hits), fmt.Sprintf("%.3f", r.StallOverCompute),
			fmt.Sprintf("%.2f", r.DemandReadsPerToken), fmt.Sprintf("%.2f", r.SpeculativeReadsPerToken),
			fmt.Sprint(r.Useful), fmt.Sprint(r.Late), fmt.Sprint(r.Wasted), fmt.Sprint(r.Displaced),
			fmt.Sprintf("%.1f %%", 100*r.LayerCompleteRate), recall)
	}
	g.writeTo(w)
}
