package plots

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	barPitch = 17  // points from bar to bar
	barWidth = 0.6 // of the pitch
)

// bars draws a panel with a bar for each run: the first run at the top, its name
// at the left if the panel is the first of its row, its value behind it.
func (f *figure) bars(p panel, styles map[string]style, named bool) *plot.Plot {
	pl := newPlot()
	pl.Add(&plotter.Grid{Vertical: gridLine()})
	var names plot.ConstantTicks
	for i, run := range f.runs {
		at := float64(len(f.runs) - 1 - i)
		if named {
			name := fit(styles[run].label, pl.Y.Tick.Label, vg.Points(150))
			names = append(names, plot.Tick{Value: at, Label: name})
		}
		for _, xy := range f.line(p, run) {
			pl.Add(bar{at: at, value: xy.Y, label: p.measure.label(xy.Y), style: styles[run]})
		}
	}
	ticks, top := f.ticks(p)
	pl.X.Min, pl.X.Max, pl.X.Tick.Marker = 0, top*1.16, ticks // room for the label of the longest bar
	pl.X.LineStyle.Width, pl.X.Tick.Length = 0, 0
	pl.Y.Min, pl.Y.Max, pl.Y.Tick.Marker = -0.6, float64(len(f.runs))-0.4, names
	pl.Y.Padding = vg.Points(10) // names are longer than figures, and so is what a wider font adds
	return pl
}

// bar is one run's value.
type bar struct {
	at, value float64
	label     string
	style     style
}

var _ plot.Plotter = bar{}

// Plot draws the bar: filled where the run reads ahead, pale where it only
// keeps, dotted where it is a bound.
func (b bar) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	left, right := x(0), x(b.value)
	low, high := y(b.at-barWidth/2), y(b.at+barWidth/2)
	corners := []vg.Point{{X: left, Y: low}, {X: right, Y: low}, {X: right, Y: high}, {X: left, Y: high}, {X: left, Y: low}}
	outline := b.style.line
	outline.Width = vg.Points(1)
	fill := outline.Color
	switch b.style.kind {
	case keeps:
		outline.Dashes, fill = nil, pale(fill)
	case bounds:
		fill = paper
	}
	c.FillPolygon(fill, corners[:4])
	c.StrokeLines(outline, corners)
	c.FillText(textStyle(tickSize, ink), vg.Point{X: right + vg.Points(4), Y: (low+high)/2 - vg.Points(tickSize)*0.36}, b.label)
}

// pale is the colour on white, four fifths of it gone.
func pale(c color.Color) color.Color {
	r, g, b, _ := c.RGBA()
	mix := func(v uint32) uint8 { return uint8((v>>8 + 4*0xFF) / 5) }
	return color.NRGBA{R: mix(r), G: mix(g), B: mix(b), A: 0xFF}
}
