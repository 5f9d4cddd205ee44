package main

import (
	"fmt"
	"io"

	"github.com/dustin/go-humanize"

	"outrider/internal/gain"
	"outrider/internal/tables"
)

func (f *gainForecast) writeTo(w io.Writer) {
	var head tables.Fields
	head.Add("checkpoint", "%s (%s)", f.Checkpoint, f.Model)
	store := fmt.Sprintf("in %s, %s", f.Dir, sizeText(f.StoreBytes))
	if f.FreeBytes != nil {
		store += fmt.Sprintf(", where %s are free", bytesText(*f.FreeBytes))
	}
	head.Add("a store", "%s", store)
	head.Add("sample", "%d layers x %d experts, %s; batches of %d, %d reads at once, %d rounds", f.Sample.Layers, f.Sample.Experts, bytesText(f.Sample.Bytes), f.Sample.Batch, f.Depth, f.Rounds)
	head.Add("raw rate", "%s/s, blocks of %s at random places, %d at once", bytesText(int64(f.RawBytesPerSecond)), bytesText(f.RawBlockBytes), f.RawDepth)
	head.Print(w)
	fmt.Fprintln(w)
	g := tables.NewGrid("experts", "reads each", "reads/token", "MB/token", "MB/s", "of raw", "stall ms/token", "engine")
	armRow(g, "in place", f.InPlace)
	armRow(g, "in a store", f.Store)
	g.Print(w)
	fmt.Fprintln(w)
	f.writeVerdict(w)
}

func (f *gainForecast) writeVerdict(w io.Writer) {
	var tail tables.Fields
	tail.Add("gain", "%.2f (half of the rounds between %.2f and %.2f)", f.Gain.Median, f.Gain.Low, f.Gain.High)
	tail.Add("in place again", "%.2f times the first", f.Again)
	tail.Add("building", "%s", f.buildText())
	tail.Add("verdict", "a store %s: %s", f.verdictText(), f.Reason)
	for _, note := range f.Notes {
		tail.Add("note", "%s", note)
	}
	tail.Print(w)
}

// buildText says what a store costs, and when that is made up for.
func (f *gainForecast) buildText() string {
	text := fmt.Sprintf("about %.0f s, by the sample", max(1, f.BuildSeconds))
	if f.Verdict == gain.Pays && f.TokensToPay > 0 {
		text += fmt.Sprintf("; made up for after %s tokens that find nothing in memory", humanize.Comma(int64(f.TokensToPay)+1))
	}
	return text
}

func armRow(g *tables.Grid, name string, a gain.Arm) {
	g.Add(name, fmt.Sprintf("%.2f", a.ReadsPerExpert), fmt.Sprintf("%.0f", a.ReadsPerToken), fmt.Sprintf("%.1f", a.BytesPerToken/1e6),
		fmt.Sprintf("%.0f", a.BytesPerSecond/1e6), fmt.Sprintf("%.0f %%", 100*a.ShareOfRaw), fmt.Sprintf("%.2f", 1e3*a.StallPerToken), a.Engine)
}

func (f *gainForecast) verdictText() string {
	if f.Verdict == gain.Uncertain {
		return "may pay or not"
	}
	return string(f.Verdict)
}
