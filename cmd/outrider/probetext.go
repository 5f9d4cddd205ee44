package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"outrider/internal/tables"
	"outrider/layout/drive"
)

// probeText is a profile for people.
type probeText struct {
	*drive.Profile
	saved string // the file that it was written to, empty if none
}

func (p probeText) writeTo(w io.Writer) {
	var f tables.Fields
	f.Add(p.Kind, "%s", p.Path)
	f.Add("spread over", "%s%s", bytesText(p.FileBytes), map[string]string{drive.KindFolder: ", a temporary file that is removed"}[p.Kind])
	f.Add("device", "%s", deviceText(p.Device))
	reads := p.Engine
	if !p.Direct && p.Fallback != "" {
		reads += ": " + p.Fallback
	}
	f.Add("reads", "%s", reads)
	f.Add("took", "%.1f s", p.Seconds)
	f.Print(w)
	fmt.Fprintln(w)
	if len(p.Lanes) > 0 {
		p.writeLanes(w)
	} else {
		p.writeCells(w, "bytes/s", func(c drive.Cell) string { return bytesText(int64(c.BytesPerSecond)) })
		p.writeCells(w, "p50-p99 µs", func(c drive.Cell) string { return fmt.Sprintf("%.0f-%.0f", c.P50Micros, c.P99Micros) })
		p.writeCells(w, "CPU s/GiB", func(c drive.Cell) string { return fmt.Sprintf("%.3f", c.CPUSecondsPerGiB) })
	}
	p.writeAdvice(w)
}

// writeCells prints one figure of all cells: a line for each block size, a
// column for each depth.
func (p probeText) writeCells(w io.Writer, what string, figure func(drive.Cell) string) {
	var sizes []int64
	var depths []int
	for _, c := range p.Cells {
		sizes, depths = append(sizes, c.BlockBytes), append(depths, c.Depth)
	}
	slices.Sort(depths)
	depths = slices.Compact(depths)
	header := []string{what}
	for _, d := range depths {
		header = append(header, fmt.Sprintf("depth %d", d))
	}
	g := tables.NewGrid(header...)
	for _, size := range slices.Compact(sizes) { // cells come by size
		row := []string{blockText(size)}
		for _, d := range depths {
			text := "-"
			if c, ok := p.Cell(size, d); ok {
				text = figure(c)
			}
			row = append(row, text)
		}
		g.Add(row...)
	}
	g.Print(w)
	fmt.Fprintln(w)
}

func (p probeText) writeLanes(w io.Writer) {
	g := tables.NewGrid("lane", "bytes/s", "block", "depth", "latency µs", "device")
	for _, l := range p.Lanes {
		g.Add(l.Path, bytesText(int64(l.BytesPerSecond)), blockText(l.BlockBytes), fmt.Sprint(l.Depth), fmt.Sprintf("%.0f", l.LatencySeconds*1e6), deviceText(drive.Device{Name: l.Device.Name, Model: l.Device.Model, FileSystem: l.Device.FileSystem}))
	}
	g.Print(w)
	fmt.Fprintln(w)
}

func (p probeText) writeAdvice(w io.Writer) {
	var f tables.Fields
	f.Add("best", "%s/s", bytesText(int64(p.BytesPerSecond)))
	f.Add("latency", "%.0f µs for one small read alone", p.LatencySeconds*1e6)
	f.Add("use", "--depth %d --block %s", p.Depth, blockText(p.BlockBytes))
	f.Add("saved", "%s", p.saved)
	f.Add("warning", "%s", strings.ReplaceAll(p.Warning, "\n", "; "))
	for _, note := range p.Notes {
		f.Add("note", "%s", note)
	}
	f.Print(w)
}

// deviceText is what is known of a device, empty if nothing is.
func deviceText(d drive.Device) string {
	var parts []string
	add := func(ok bool, format string, args ...any) {
		if ok {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(d.Name != "", "%s", d.Name)
	add(d.Model != "", "%s", d.Model)
	add(d.FileSystem != "", "%s", d.FileSystem)
	add(d.Rotational, "rotational")
	add(d.Link != "", "%s (at most %s/s)", d.Link, bytesText(int64(d.LinkBytesPerSecond)))
	add(d.Scheduler != "", "scheduler %s", d.Scheduler)
	add(d.LogicalBlockBytes > 0, "sectors of %d", d.LogicalBlockBytes)
	add(d.MaxRequestBytes > 0, "requests up to %s", bytesText(d.MaxRequestBytes))
	return strings.Join(parts, ", ")
}

// blockText is a block size as flags take it: "1MiB".
func blockText(n int64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", n>>20)
	case n%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", n>>10)
	}
	return fmt.Sprint(n)
}
