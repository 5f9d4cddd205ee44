package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"outrider/internal/amount"
	"outrider/internal/plots"
	"outrider/internal/sim"
	"outrider/trace"
)

// What simulate and replay have in common: the trace they describe, the sizes and
// drives they are told of, and the plot.

func describeTrace(paths []string, t *trace.Trace) simulatedTrace {
	shape := t.Header.Shape
	return simulatedTrace{
		Path: strings.Join(paths, ", "), Model: t.Header.Model,
		Layers: shape.Layers, Experts: shape.Experts, TopK: shape.TopK, Tokens: t.Len(),
	}
}

func (t simulatedTrace) writeTo(w io.Writer) {
	fmt.Fprintf(w, "%s: %s, %d layers x %d experts, top %d, %d tokens\n\n", t.Path, t.Model, t.Layers, t.Experts, t.TopK, t.Tokens)
}

// processors is how many things are computed at once.
func processors() int { return runtime.NumCPU() }

// cacheSize is a share of all experts ("25%", "0.25"), a number of experts
// ("192", "192 experts") or bytes ("4GiB").
type cacheSize struct {
	share   float64
	experts int
	bytes   int64
}

// UnmarshalText implements encoding.TextUnmarshaler, for the command line.
func (c *cacheSize) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	number, named := strings.CutSuffix(s, "experts")
	if n, err := strconv.Atoi(strings.TrimSpace(number)); err == nil && (named || n > 1) {
		if n < 1 {
			return fmt.Errorf("%q is no size: want 1 expert or more", s)
		}
		*c = cacheSize{experts: n}
		return nil
	}
	var part amount.Share
	if err := part.UnmarshalText([]byte(s)); err == nil {
		*c = cacheSize{share: float64(part)}
		return nil
	}
	n, err := humanize.ParseBytes(s)
	if err != nil || n == 0 || n > math.MaxInt64 || strings.HasSuffix(s, "%") {
		return fmt.Errorf(`%q is no cache size: give a share over 0%% to 100%% such as 25%%, a number of experts such as 192, or bytes such as 4GiB`, s)
	}
	*c = cacheSize{bytes: int64(n)}
	return nil
}

// driveFlag is a drive's bandwidth and latency: "3GB/s", "3GB/s+80us".
type driveFlag sim.Drive

// UnmarshalText implements encoding.TextUnmarshaler, for the command line.
func (d *driveFlag) UnmarshalText(text []byte) error {
	bandwidth, latency, found := strings.Cut(strings.TrimSpace(string(text)), "+")
	size, perSecond := strings.CutSuffix(bandwidth, "/s")
	n, err := humanize.ParseBytes(size)
	if err != nil || !perSecond || n == 0 {
		return fmt.Errorf(`%q is no drive: give its bandwidth such as 3GB/s, and if it matters its latency: 3GB/s+80us`, text)
	}
	*d = driveFlag{BytesPerSecond: float64(n)}
	if found {
		if d.Latency, err = time.ParseDuration(latency); err != nil || d.Latency < 0 {
			return fmt.Errorf(`%q has no latency that could be read: want a time such as 80us`, text)
		}
	}
	return nil
}

// checkPlot finds out before the work whether the plot can be drawn.
func checkPlot(path string) error {
	if path == "" {
		return nil
	}
	if _, err := plots.Format(path); err != nil {
		return usagef("--plot: %v", err)
	}
	return nil
}

func plotSimulation(path string, s *simulation) error {
	d := plots.Data{
		Title:    s.Trace.Model,
		Subtitle: fmt.Sprintf("%d layers x %d experts, top %d, %s tokens", s.Trace.Layers, s.Trace.Experts, s.Trace.TopK, humanize.Comma(int64(s.Trace.Tokens))),
	}
	for _, r := range s.Cells {
		d.Points = append(d.Points, plots.Point{
			Run: r.Run, CacheShare: r.CacheShare, Ratio: r.Ratio, Hits: r.Hits, StallOverCompute: r.StallOverCompute,
		})
	}
	return writeRuns(path, d)
}
