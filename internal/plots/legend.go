package plots

import (
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	legendSize  = 9.5 // points
	legendPitch = vg.Length(14)
	sampleWidth = vg.Length(26)
	sampleGap   = vg.Length(5)
	columnGap   = vg.Length(20)
)

// legend says which line is which run. It fills column by column, so that a run
// and its +spec often stand above each other.
type legend struct {
	entries       []style
	columns, rows int
	column        vg.Length // width
}

func newLegend(runs []string, styles map[string]style, room vg.Length) legend {
	l := legend{}
	text := textStyle(legendSize, ink)
	for _, run := range runs {
		s := styles[run]
		s.label = fit(s.label, text, room/4)
		l.entries = append(l.entries, s)
		l.column = max(l.column, sampleWidth+sampleGap+text.Width(s.label)+columnGap)
	}
	fitting := max(1, int((room+columnGap)/l.column))
	l.rows = (len(runs) + fitting - 1) / fitting
	l.columns = (len(runs) + l.rows - 1) / l.rows
	return l
}

func (l legend) height() vg.Length { return vg.Length(l.rows) * legendPitch }

// draw puts the legend into the middle of a canvas as high as it is.
func (l legend) draw(c draw.Canvas) {
	left := c.Center().X - (vg.Length(l.columns)*l.column-columnGap)/2
	text := textStyle(legendSize, ink)
	for i, s := range l.entries {
		x := left + vg.Length(i/l.rows)*l.column
		y := c.Max.Y - (vg.Length(i%l.rows)+0.5)*legendPitch
		c.StrokeLine2(s.line, x, y, x+sampleWidth, y)
		if s.kind == reads {
			s.fillMarkers(c, []vg.Point{{X: x + sampleWidth/2, Y: y}})
		}
		c.FillText(text, vg.Point{X: x + sampleWidth + sampleGap, Y: y - vg.Points(legendSize)*0.36}, s.label)
	}
}

// key tells what the looks mean that are in the picture.
func key(styles map[string]style, bars bool) string {
	words := map[kind]string{reads: "solid: also reads ahead", keeps: "dashed: keeps only", bounds: "dotted: bound, knows the future"}
	if bars {
		words[reads], words[keeps] = "filled: also reads ahead", "pale: keeps only"
	}
	var parts []string
	for _, k := range []kind{keeps, reads, bounds} {
		for _, s := range styles {
			if s.kind == k {
				parts = append(parts, words[k])
				break
			}
		}
	}
	return strings.Join(parts, "  ·  ")
}
