package plots

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Sizes are in points, of which 3 are 4 pixels of SVG: a picture is 900 pixels
// wide.
const (
	pictureWidth = vg.Length(675)
	margin       = vg.Length(12)
	panelHeight  = vg.Length(188) // with its ticks
	panelTitle   = vg.Length(24)
	panelGap     = vg.Length(22)
	titlePitch   = vg.Length(19)
	subtitle     = vg.Length(15)
	axisPitch    = vg.Length(12)
	keyPitch     = vg.Length(13)
)

// Format tells the format that a file's ending asks for: "svg" or "png".
func Format(path string) (string, error) {
	switch ending := strings.ToLower(filepath.Ext(path)); ending {
	case ".svg", ".png":
		return ending[1:], nil
	}
	return "", fmt.Errorf("plots: %q has no format that can be drawn: end the name in .svg or .png", path)
}

// Simulation draws the points in format "svg" or "png": 900 pixels wide as SVG,
// 1800 as PNG, so that it is sharp at that size on dense screens. Each ratio has
// a panel of stall and one of hits; the latter comes once if hits do not depend
// on the ratio. The same data gives the same bytes.
//
// Nothing is written if the format is unknown, there are no points, a figure is
// not a number or out of range, or there are more runs (32), ratios (8) or cache
// shares (256) than can be read. Calls may run in parallel.
func Simulation(w io.Writer, format string, d Data) error {
	f, err := arrange(d.Points)
	if err != nil {
		return err
	}
	p := newPicture(f, d)
	return render(w, format, p.height(), p.draw)
}

// picture is a figure laid out.
type picture struct {
	figure          *figure
	title, subtitle string
	styles          map[string]style
	panels          []panel
	columns, rows   int
	bars            bool
	legend          legend
	axis            string // below the lowest panels
}

func newPicture(f *figure, d Data) *picture {
	p := &picture{
		figure: f, title: clean(d.Title), subtitle: clean(d.Subtitle),
		styles: stylesOf(f.runs), panels: f.panels(), columns: 2, bars: len(f.shares) == 1,
	}
	// Pairs of stall and hits stay side by side; an odd number is stalls and one of hits.
	if n := len(p.panels); !f.hitsDependOnRatio() && (n == 3 || n > 4) {
		p.columns = 3
	}
	p.rows = (len(p.panels) + p.columns - 1) / p.columns
	if p.bars {
		p.axis = "cache: " + percent(f.shares[0]) + " of all experts"
		return p
	}
	p.legend = newLegend(f.runs, p.styles, pictureWidth-2*margin)
	p.axis = "cache, share of all experts"
	if f.logarithmic() {
		p.axis += " (logarithmic)"
	}
	return p
}

func (p *picture) headHeight() vg.Length {
	h := margin
	if p.title != "" {
		h += titlePitch
	}
	if p.subtitle != "" {
		h += subtitle
	}
	return h
}

// footHeight is that of the legend and the key to it.
func (p *picture) footHeight() vg.Length { return p.legend.height() + keyPitch + 2*margin }

func (p *picture) height() vg.Length {
	panel := panelHeight
	if p.bars {
		panel = vg.Length(len(p.figure.runs))*barPitch + 30
	}
	return p.headHeight() + vg.Length(p.rows)*(panelTitle+panel) + axisPitch + p.footHeight()
}

func (p *picture) draw(c draw.Canvas) {
	c.SetColor(paper)
	c.Fill(c.Rectangle.Path())
	c = draw.Crop(c, margin, -margin, 0, 0)
	p.drawHead(c)
	p.drawPanels(draw.Crop(c, 0, 0, p.footHeight(), -p.headHeight()))

	foot := textStyle(tickSize, faint)
	foot.XAlign = text.XCenter
	c.FillText(foot, vg.Point{X: c.Center().X, Y: margin}, key(p.styles, p.bars))
	if !p.bars {
		low := margin + keyPitch
		c.Min.Y, c.Max.Y = low, low+p.legend.height()
		p.legend.draw(c)
	}
}

func (p *picture) drawHead(c draw.Canvas) {
	y := c.Max.Y - margin
	if p.title != "" {
		y -= titlePitch
		style := bold(textStyle(14, ink))
		c.FillText(style, vg.Point{X: c.Min.X, Y: y + 5}, fit(p.title, style, c.Max.X-c.Min.X))
	}
	if p.subtitle != "" {
		y -= subtitle
		style := textStyle(10, faint)
		c.FillText(style, vg.Point{X: c.Min.X, Y: y + 4}, fit(p.subtitle, style, c.Max.X-c.Min.X))
	}
}

// drawPanels draws them row by row, with data areas of one size.
func (p *picture) drawPanels(c draw.Canvas) {
	tiles := draw.Tiles{Rows: p.rows, Cols: p.columns, PadTop: panelTitle, PadBottom: axisPitch, PadX: panelGap, PadY: panelTitle}
	plots := make([][]*plot.Plot, p.rows)
	for row := range plots {
		plots[row] = make([]*plot.Plot, p.columns)
		for column := range plots[row] {
			if i := row*p.columns + column; i < len(p.panels) {
				plots[row][column] = p.plot(i)
			}
		}
	}
	title := bold(textStyle(10, ink))
	axis := textStyle(tickSize, faint)
	axis.XAlign = text.XCenter
	canvases := plot.Align(plots, tiles, c)
	for i, panel := range p.panels {
		row, column := i/p.columns, i%p.columns
		at := canvases[row][column]
		plots[row][column].Draw(at)
		c.FillText(title, vg.Point{X: leftOf(canvases, column), Y: at.Max.Y + 7}, panel.title)
		if i+p.columns >= len(p.panels) {
			data := plots[row][column].DataCanvas(at)
			c.FillText(axis, vg.Point{X: data.Center().X, Y: at.Min.Y - axisPitch + 3}, p.axis)
		}
	}
}

// leftOf is where a column starts: its rows start apart, as their labels are not
// of one width.
func leftOf(canvases [][]draw.Canvas, column int) vg.Length {
	left := canvases[0][column].Min.X
	for _, row := range canvases {
		left = min(left, row[column].Min.X)
	}
	return left
}

func (p *picture) plot(i int) *plot.Plot {
	if p.bars {
		return p.figure.bars(p.panels[i], p.styles, i%p.columns == 0)
	}
	return p.figure.curves(p.panels[i], p.styles, pictureWidth/vg.Length(p.columns)-50)
}
