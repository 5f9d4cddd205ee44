package plots

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// measure is what a panel shows of each point.
type measure uint8

const (
	stall measure = iota
	hits
)

// panel is one plot of the picture.
type panel struct {
	title   string
	measure measure
	ratio   float64
}

// panels are the stall and the hits of each ratio. Hits that do not depend on
// the ratio are shown once, after all stalls.
func (f *figure) panels() []panel {
	var list []panel
	depends := f.hitsDependOnRatio()
	for _, ratio := range f.ratios {
		at := "ratio " + number(ratio, 4)
		list = append(list, panel{"Exposed stall ÷ compute, " + at, stall, ratio})
		if depends {
			list = append(list, panel{"Hits, " + at, hits, ratio})
		}
	}
	if !depends {
		list = append(list, panel{"Hits", hits, f.ratios[0]})
	}
	return list
}

func (m measure) of(p Point) float64 {
	if m == hits {
		return p.Hits
	}
	return p.StallOverCompute
}

// label writes a value beside its bar, as the tables of the command line do.
func (m measure) label(v float64) string {
	switch {
	case m == hits:
		return fmt.Sprintf("%.1f %%", 100*v)
	case v < 100:
		return fmt.Sprintf("%.3f", v)
	}
	return number(v, 4)
}

// ticks of the axis of values, and its end.
func (f *figure) ticks(p panel) (plot.ConstantTicks, float64) {
	if p.measure == hits {
		return hitTicks()
	}
	most := 0.0
	for at, point := range f.points {
		if at.ratio == p.ratio {
			most = max(most, point.StallOverCompute)
		}
	}
	return stallTicks(most)
}

// newPlot is an empty plot with the look that all panels share.
func newPlot() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		tick := textStyle(tickSize, ink)
		tick.XAlign, tick.YAlign = axis.Tick.Label.XAlign, axis.Tick.Label.YAlign
		axis.Tick.Label = tick
		axis.Tick.Color, axis.LineStyle.Color = faint, faint
		axis.Tick.Length, axis.Padding = vg.Points(3), 0
	}
	// No line, but air: a viewer's own font may be wider.
	p.Y.LineStyle.Width, p.Y.Tick.Length, p.Y.Padding = 0, 0, vg.Points(5)
	return p
}

func gridLine() draw.LineStyle { return draw.LineStyle{Color: lines, Width: vg.Points(0.6)} }

// curves draws a panel with a line for each run. Its data is about width wide.
func (f *figure) curves(p panel, styles map[string]style, width vg.Length) *plot.Plot {
	pl := newPlot()
	pl.Add(&plotter.Grid{Vertical: gridLine(), Horizontal: gridLine()})
	for _, k := range []kind{bounds, keeps, reads} { // what matters most lies on top
		for _, run := range f.runs {
			if s := styles[run]; s.kind == k {
				pl.Add(curve{points: f.line(p, run), style: s})
			}
		}
	}
	ticks, top := f.ticks(p)
	pl.Y.Min, pl.Y.Max, pl.Y.Tick.Marker = 0, top, ticks
	f.shareAxis(&pl.X)
	pl.X.Tick.Marker = shareTicks(&pl.X, f.shares, width)
	return pl
}

// shareAxis leaves so much room at both ends that the labels there do not stick
// out: panels below each other would not be of one width.
func (f *figure) shareAxis(axis *plot.Axis) {
	const room = 1.0 / 12
	first, last := f.shares[0], f.shares[len(f.shares)-1]
	axis.Min, axis.Max = first-(last-first)*room, last+(last-first)*room
	if f.logarithmic() {
		axis.Scale = plot.LogScale{}
		factor := math.Pow(last/first, room)
		axis.Min, axis.Max = first/factor, last*factor
	}
}

// line is one run's values in the order of cache shares.
func (f *figure) line(p panel, run string) plotter.XYs {
	var xys plotter.XYs
	for _, share := range f.shares {
		if point, ok := f.points[cell{run, share, p.ratio}]; ok {
			xys = append(xys, plotter.XY{X: share, Y: p.measure.of(point)})
		}
	}
	return xys
}

// curve draws one run.
type curve struct {
	points plotter.XYs
	style  style
}

var _ plot.Plotter = curve{}

// Plot draws the line, and markers where the run reads ahead or has one point only.
func (l curve) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	var at []vg.Point
	for _, point := range l.points {
		at = append(at, vg.Point{X: x(point.X), Y: y(point.Y)})
	}
	if len(at) > 1 {
		c.StrokeLines(l.style.line, at)
	}
	if l.style.kind == reads || len(at) == 1 {
		l.style.fillMarkers(c, at)
	}
}

func (s style) fillMarkers(c draw.Canvas, at []vg.Point) {
	var path vg.Path
	for _, point := range at {
		s.marker.add(&path, point)
	}
	c.SetColor(s.line.Color)
	c.Fill(path)
}
