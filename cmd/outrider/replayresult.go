package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/dustin/go-humanize"

	"outrider/internal/plots"
	"outrider/internal/replay"
	"outrider/internal/sim"
	"outrider/internal/tables"
)

// replayed is what replay --json prints. The fields of a cell that simulate has
// too mean the same.
type replayed struct {
	Trace     simulatedTrace  `json:"trace"`
	Store     replayedStore   `json:"store"`
	ComputeUS float64         `json:"compute_us"` // of a layer
	Attention float64         `json:"attention"`
	Rounds    int             `json:"rounds"`
	Cold      bool            `json:"cold"` // no page of the store was in the page cache at any start
	ColdWhy   string          `json:"cold_why_not,omitempty"`
	Cells     []*replayedCell `json:"cells"`
}

type replayedStore struct {
	Path     string `json:"path"`
	Made     bool   `json:"made"`      // for this call, without weights
	AllBytes int64  `json:"all_bytes"` // of all experts in memory
	Direct   bool   `json:"direct"`
	Fallback string `json:"fallback,omitempty"`
	Engine   string `json:"engine"` // that reads
}

// replayedCell is one arm: medians over its rounds. Of the simulation's fields,
// Ratio is measured: top-k experts by the raw reader over compute, 0 if it read
// nothing.
type replayedCell struct {
	sim.Result
	Again             bool    `json:"again"` // the first arm once more, at the end
	BudgetBytes       int64   `json:"budget_bytes"`
	StallLeast        float64 `json:"stall_over_compute_least"`
	StallMost         float64 `json:"stall_over_compute_most"`
	TokensPerSecond   float64 `json:"tokens_per_s"`
	ReadBytes         float64 `json:"read_bytes"` // a round; -1 where not known
	BytesPerSecond    float64 `json:"bytes_per_s"`
	RawBytesPerSecond float64 `json:"raw_bytes_per_s"` // of a raw reader over the same extents
	MajorFaults       int64   `json:"major_faults,omitempty"`
	Limit             string  `json:"limit,omitempty"`            // of the page cache, for mmap
	ReadAheadBytes    int64   `json:"read_ahead_bytes,omitempty"` // around a fault, for mmap; -1 where not known
	Failed            string  `json:"failed,omitempty"`           // the arm could not play: the other figures mean nothing
}

// add turns what was measured into figures.
func (r *replayed) add(results []replay.Result, c *replayCmd) {
	r.ComputeUS, r.Attention, r.Rounds, r.Cold = float64(c.Compute)/1e3, c.Attention, c.Rounds, true
	r.Store.Direct = true
	for _, result := range results {
		r.Cells = append(r.Cells, r.cellOf(result))
		for _, round := range result.Rounds {
			switch {
			case round.WarmPages < 0:
				r.Cold, r.ColdWhy = false, "the system does not tell what is in the page cache"
			case round.WarmPages > 0:
				r.Cold, r.ColdWhy = false, fmt.Sprintf("%d pages of the store stayed in the page cache", round.WarmPages)
			}
			if result.Run != replay.Mmap && !round.Direct {
				r.Store.Direct, r.Store.Fallback = false, round.Fallback
			}
		}
	}
}

func (r *replayed) cellOf(result replay.Result) *replayedCell {
	median := func(of func(replay.Round) float64) float64 { return medianOf(result.Rounds, of) }
	first := result.Rounds[0]
	cell := &replayedCell{Again: result.Again, BudgetBytes: result.BudgetBytes, Limit: first.Limit, ReadAheadBytes: first.ReadAheadBytes}
	cell.Run, cell.Tokens, cell.Passes = result.Run, first.Tokens, first.Passes
	cell.CacheShare = per(float64(result.BudgetBytes), float64(r.Store.AllBytes))
	cell.CacheExperts = int(cell.CacheShare * float64(r.Trace.Layers*r.Trace.Experts))
	cell.Hits = median(func(x replay.Round) float64 { return per(float64(x.Hits), float64(x.Lookups)) })
	cell.DemandReadsPerToken = median(func(x replay.Round) float64 { return per(float64(x.DemandReads), float64(x.Tokens)) })
	cell.SpeculativeReadsPerToken = median(func(x replay.Round) float64 { return per(float64(x.SpeculativeReads), float64(x.Tokens)) })
	cell.Useful = int64(median(func(x replay.Round) float64 { return float64(x.Useful) }))
	cell.Late = int64(median(func(x replay.Round) float64 { return float64(x.Late) }))
	cell.Wasted = int64(median(func(x replay.Round) float64 { return float64(x.Wasted) }))
	cell.Displaced = int64(median(func(x replay.Round) float64 { return float64(x.Displaced) }))
	cell.StallOverCompute = median(replay.Round.StallOverCompute)
	cell.StallLeast, cell.StallMost = spread(result.Rounds)
	cell.LayerCompleteRate = median(func(x replay.Round) float64 { return per(float64(x.Complete), float64(x.Executions)) })
	cell.RecallAtK = median(func(x replay.Round) float64 { return x.RecallAtK })
	cell.TokensPerSecond = median(func(x replay.Round) float64 { return per(float64(x.Tokens), x.Took.Seconds()) })
	cell.ReadBytes = median(func(x replay.Round) float64 { return float64(x.ReadBytes) })
	cell.BytesPerSecond = median(func(x replay.Round) float64 { return per(max(float64(x.ReadBytes), 0), x.Took.Seconds()) })
	cell.RawBytesPerSecond = median(func(x replay.Round) float64 { return x.RawBytesPerSecond })
	cell.MajorFaults = int64(median(func(x replay.Round) float64 { return float64(x.MajorFaults) }))
	for _, round := range result.Rounds {
		cell.Failed = cmp.Or(cell.Failed, round.Failed)
	}
	each := per(float64(r.Store.AllBytes)/float64(r.Trace.Layers*r.Trace.Experts), cell.RawBytesPerSecond)
	cell.Ratio = each * float64(r.Trace.TopK) / (r.ComputeUS / 1e6)
	return cell
}

// per is n for each of what there is of it, 0 if there is nothing.
func per(n, of float64) float64 {
	if of == 0 {
		return 0
	}
	return n / of
}

// medianOf is the middle value over the rounds, the lower of two.
func medianOf(rounds []replay.Round, of func(replay.Round) float64) float64 {
	values := make([]float64, len(rounds))
	for i, round := range rounds {
		values[i] = of(round)
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// spread is the least and the most stall over compute.
func spread(rounds []replay.Round) (least, most float64) {
	least = rounds[0].StallOverCompute()
	for _, round := range rounds {
		s := round.StallOverCompute()
		least, most = min(least, s), max(most, s)
	}
	return least, most
}

func (r *replayed) writeTo(w io.Writer) {
	r.Trace.writeTo(w)
	var f tables.Fields
	f.Add("store", "%s%s", r.Store.Path, map[bool]string{true: " (made for this call, without weights)"}[r.Store.Made])
	f.Add("experts", "%s", sizeText(r.Store.AllBytes))
	reads := r.Store.Engine
	if r.Store.Fallback != "" {
		reads += ": " + r.Store.Fallback
	}
	f.Add("reads", "%s", reads)
	cold := "no page of the store was in the page cache"
	if !r.Cold {
		cold = "not cold: " + r.ColdWhy
	}
	f.Add("start", "%s", cold)
	f.Add("compute", "%.4g us a layer, imitated", r.ComputeUS)
	f.Print(w)
	fmt.Fprintln(w)
	r.writeCells(w)
	for _, c := range r.Cells {
		switch {
		case c.Failed != "":
			fmt.Fprintf(w, "\n%s at %.4g %%: %s\n", c.Run, 100*c.CacheShare, c.Failed)
		case c.Run == replay.Mmap:
			fmt.Fprintf(w, "\nmmap at %.4g %%: %s major faults a round; page cache %s; the kernel reads %s around a fault\n",
				100*c.CacheShare, humanize.Comma(c.MajorFaults), c.Limit, readAheadText(c.ReadAheadBytes))
		}
	}
}

func (r *replayed) writeCells(w io.Writer) {
	g := tables.NewGrid("cache", "run", "hits", "stall/compute", "spread", "demand/token", "spec/token",
		"useful", "late", "wasted", "displaced", "complete", "recall@k", "read/s", "raw/s", "ratio")
	for _, c := range r.Cells {
		name := c.Run
		if c.Again {
			name += " again"
		}
		row := []string{fmt.Sprintf("%.4g %%", 100*c.CacheShare), name, "-", fmt.Sprintf("%.3f", c.StallOverCompute),
			fmt.Sprintf("%.3f-%.3f", c.StallLeast, c.StallMost), "-", "-", "-", "-", "-", "-", "-", "-", bytesText(int64(c.BytesPerSecond)), "-", "-"}
		if c.Failed != "" {
			row[3], row[4], row[13] = "failed", "-", "-"
		}
		if c.Run != replay.Mmap {
			row[2] = fmt.Sprintf("%.1f %%", 100*c.Hits)
			row[5], row[6] = fmt.Sprintf("%.2f", c.DemandReadsPerToken), fmt.Sprintf("%.2f", c.SpeculativeReadsPerToken)
			row[7], row[8], row[9], row[10] = fmt.Sprint(c.Useful), fmt.Sprint(c.Late), fmt.Sprint(c.Wasted), fmt.Sprint(c.Displaced)
			row[11], row[12] = fmt.Sprintf("%.1f %%", 100*c.LayerCompleteRate), recallText(c.RecallAtK)
			row[14], row[15] = bytesText(int64(c.RawBytesPerSecond)), fmt.Sprintf("%.3g", c.Ratio)
		}
		g.Add(row...)
	}
	g.Print(w)
}

func readAheadText(n int64) string {
	if n < 0 {
		return "what it does not tell"
	}
	return bytesText(n)
}

// plot is the figures as a picture; the ratio is that of the first arm, since it
// is measured and differs a little from arm to arm.
func (r *replayed) plot() plots.Data {
	d := plots.Data{
		Title:    r.Trace.Model,
		Subtitle: fmt.Sprintf("replayed with real reads: %d layers x %d experts, top %d, %d tokens", r.Trace.Layers, r.Trace.Experts, r.Trace.TopK, r.Trace.Tokens),
	}
	for _, c := range r.Cells {
		if !c.Again && c.Failed == "" {
			d.Points = append(d.Points, plots.Point{Run: c.Run, CacheShare: c.CacheShare, Ratio: r.Cells[0].Ratio, Hits: c.Hits, StallOverCompute: c.StallOverCompute})
		}
	}
	return d
}
