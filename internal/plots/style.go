package plots

import (
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// kind is what a run does, and so how its line looks.
type kind uint8

const (
	keeps  kind = iota // dashed
	reads              // solid, with markers
	bounds             // dotted
)

// families have their colours in every picture; others get one that is free.
var families = []string{"lru", "online", "lfu", "decayed", "frequency", "matrix", "transition", "least-stale"}

var palette = []color.NRGBA{
	rgb(0x0072B2), // blue (Okabe and Ito, as are the next five)
	rgb(0xD55E00), // vermilion
	rgb(0x56B4E9), // sky blue
	rgb(0x009E73), // bluish green
	rgb(0xE69F00), // orange
	rgb(0xCC79A7), // reddish purple
	rgb(0x882255), // wine (Tol)
	rgb(0x999933), // olive (Tol)
}

// boundColors: Okabe and Ito's black is the optimum's.
var boundColors = []color.NRGBA{rgb(0x000000), rgb(0x808080), rgb(0x555555), rgb(0xAAAAAA)}

var (
	ink   = rgb(0x222222) // text
	faint = rgb(0x666666) // text that is less needed
	lines = rgb(0xE4E4E4) // grid
	paper = rgb(0xFFFFFF)
)

func rgb(hex uint32) color.NRGBA {
	return color.NRGBA{R: uint8(hex >> 16), G: uint8(hex >> 8), B: uint8(hex), A: 0xFF}
}

// style is how one run is drawn.
type style struct {
	kind   kind
	label  string
	line   draw.LineStyle
	marker marker
}

// kindOf goes by the name, as the package's documentation tells.
func kindOf(run string) kind {
	base, ending, _ := strings.Cut(run, "+")
	switch {
	case base == "optimum" || base == "oracle" || ending == "next":
		return bounds
	case ending == "spec":
		return reads
	}
	return keeps
}

// stylesOf gives each run its look. Runs of one family share a colour and a
// marker. Where there are more families than colours, colours come again.
func stylesOf(runs []string) map[string]style {
	styles := make(map[string]style, len(runs))
	known := slices.Clone(families)
	limits := []string{"optimum"}
	for _, run := range runs {
		s := style{kind: kindOf(run), label: clean(run), line: draw.LineStyle{Width: vg.Points(1.5)}}
		if s.kind == bounds {
			limits = with(limits, run)
			s.label += " (bound)"
			s.line.Color = boundColors[slices.Index(limits, run)%len(boundColors)]
			s.line.Dashes = []vg.Length{vg.Points(1.5), vg.Points(2)}
			styles[run] = s
			continue
		}
		family, _, _ := strings.Cut(run, "+")
		if !slices.Contains(known, family) {
			known = place(known, family, runs)
		}
		i := slices.Index(known, family)
		s.line.Color, s.marker = palette[i%len(palette)], markers[i%len(markers)]
		if s.kind == keeps {
			s.line.Dashes = []vg.Length{vg.Points(5), vg.Points(2.5)}
		}
		styles[run] = s
	}
	return styles
}

// place gives a family the place of one that is not in the picture, or a new one.
func place(known []string, family string, runs []string) []string {
	for i, other := range known {
		used := slices.ContainsFunc(runs, func(run string) bool {
			base, _, _ := strings.Cut(run, "+")
			return base == other && kindOf(run) != bounds
		})
		if !used {
			known[i] = family
			return known
		}
	}
	return append(known, family)
}

// marker is a regular polygon, or a circle where it has no sides.
type marker struct {
	sides int
	turn  float64 // of the first corner, in radians
}

var markers = []marker{
	{sides: 4, turn: math.Pi / 4}, // square
	{},                            // circle
	{sides: 3, turn: math.Pi / 2}, // triangle
	{sides: 3, turn: -math.Pi / 2},
	{sides: 4, turn: math.Pi / 2}, // diamond
	{sides: 5, turn: math.Pi / 2},
	{sides: 3, turn: 0},
	{sides: 3, turn: math.Pi},
}

const markerRadius = vg.Length(3)

// add draws the marker into a path. One path takes all markers of a run, which
// keeps SVG files small.
func (m marker) add(path *vg.Path, at vg.Point) {
	if m.sides == 0 {
		path.Move(vg.Point{X: at.X + markerRadius, Y: at.Y})
		path.Arc(at, markerRadius, 0, 2*math.Pi)
		path.Close()
		return
	}
	// Corners reach further out than a circle of the same area.
	radius := float64(markerRadius) * (1 + 0.9/float64(m.sides))
	for i := range m.sides {
		sin, cos := math.Sincos(m.turn + 2*math.Pi*float64(i)/float64(m.sides))
		corner := vg.Point{X: at.X + vg.Length(radius*cos), Y: at.Y + vg.Length(radius*sin)}
		if i == 0 {
			path.Move(corner)
		} else {
			path.Line(corner)
		}
	}
	path.Close()
}
