package plots

import (
	"fmt"
	"io"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// EvaluationData is what a picture of forecasts shows.
type EvaluationData struct {
	Title    string // such as the model; may be empty
	Subtitle string // smaller, below the title; may be empty
	Lines    []EvaluationLine
}

// EvaluationLine is one predictor's.
type EvaluationLine struct {
	// Name is that of a predictor, such as "online", maybe with a variant behind a
	// comma: "online, no ids" has the colour of "online" and is dashed.
	Name        string
	Reliability []Reliability // by rising score; may be empty
	Recall      []float64     // by layer, 0 to 1; may be empty
}

// Reliability is the share that came true of what was scored about so.
type Reliability struct {
	Score float64 // mean, 0 to 1
	Used  float64 // share that came true, 0 to 1
}

// maxLayers is more than any model has.
const maxLayers = 4096

const (
	evaluationHeight = vg.Length(270) // of a panel with its ticks
	evaluationKey    = "solid grey: as many came true as were scored"
)

// Evaluation draws two panels in format "svg" or "png", of the sizes that
// Simulation has: on the left what share of the experts came true by how they were
// scored, on the right recall by layer. The same data gives the same bytes.
//
// Nothing is written if the format is unknown, there are no lines, two have one name,
// a figure is not a number or out of range, or there are more lines (32) than can
// be read. Calls may run in parallel.
func Evaluation(w io.Writer, format string, d EvaluationData) error {
	e, err := newEvaluation(d)
	if err != nil {
		return err
	}
	return render(w, format, e.height(), e.draw)
}

// evaluation is EvaluationData laid out.
type evaluation struct {
	head   picture // draws the titles
	lines  []EvaluationLine
	layers int
	styles map[string]style
	legend legend
}

func newEvaluation(d EvaluationData) (*evaluation, error) {
	e := &evaluation{head: picture{title: clean(d.Title), subtitle: clean(d.Subtitle)}, lines: d.Lines}
	if len(d.Lines) == 0 || len(d.Lines) > maxRuns {
		return nil, fmt.Errorf("plots: there are %d predictors to draw, want 1 to %d", len(d.Lines), maxRuns)
	}
	var names []string
	for i, l := range d.Lines {
		if err := l.check(); err != nil {
			return nil, fmt.Errorf("plots: line %d (predictor %q): %w", i, l.Name, err)
		}
		if names = with(names, l.Name); len(names) == i {
			return nil, fmt.Errorf("plots: line %d: there are two of the predictor %q", i, l.Name)
		}
		e.layers = max(e.layers, len(l.Recall))
	}
	e.styles = predictorStyles(names)
	e.legend = newLegend(names, e.styles, pictureWidth-2*margin)
	return e, nil
}

func (l EvaluationLine) check() error {
	switch {
	case l.Name == "":
		return fmt.Errorf("has no name")
	case len(l.Recall) > maxLayers || len(l.Reliability) > maxLayers:
		return fmt.Errorf("has %d layers and %d points of reliability, want at most %d", len(l.Recall), len(l.Reliability), maxLayers)
	}
	for layer, v := range l.Recall {
		if !(v >= 0 && v <= 1) {
			return fmt.Errorf("recall of layer %d is %v, want 0 to 1", layer, v)
		}
	}
	for _, r := range l.Reliability {
		if !(r.Score >= 0 && r.Score <= 1 && r.Used >= 0 && r.Used <= 1) {
			return fmt.Errorf("of score %v the share that came true is %v, want both 0 to 1", r.Score, r.Used)
		}
	}
	return nil
}

// variantDashes tell the variants of a predictor apart.
var variantDashes = [][]vg.Length{{vg.Points(5), vg.Points(2.5)}, {vg.Points(2), vg.Points(2)}, {vg.Points(8), vg.Points(2), vg.Points(2), vg.Points(2)}}

// predictorStyles gives predictors the colours that runs by them have.
func predictorStyles(names []string) map[string]style {
	runs := make([]string, len(names))
	variants := map[string]int{}
	for i, name := range names {
		base, _, _ := strings.Cut(name, ",")
		if base == "recency" {
			base = "decayed" // so its run is called
		}
		runs[i] = base
		if kindOf(base) != bounds {
			runs[i] += "+spec" // solid, with markers
		}
	}
	byRun := stylesOf(runs)
	styles := make(map[string]style, len(names))
	for i, name := range names {
		s := byRun[runs[i]]
		s.label = clean(name)
		if s.kind == bounds {
			s.label += " (bound)"
		} else if n := variants[runs[i]]; strings.Contains(name, ",") {
			s.line.Dashes = variantDashes[n%len(variantDashes)]
			variants[runs[i]]++
		}
		styles[name] = s
	}
	return styles
}

func (e *evaluation) footHeight() vg.Length { return e.legend.height() + keyPitch + 2*margin }

func (e *evaluation) height() vg.Length {
	return e.head.headHeight() + panelTitle + evaluationHeight + axisPitch + e.footHeight()
}

func (e *evaluation) draw(c draw.Canvas) {
	c.SetColor(paper)
	c.Fill(c.Rectangle.Path())
	c = draw.Crop(c, margin, -margin, 0, 0)
	e.head.drawHead(c)
	e.drawPanels(draw.Crop(c, 0, 0, e.footHeight(), -e.head.headHeight()))

	foot := textStyle(tickSize, faint)
	foot.XAlign = text.XCenter
	c.FillText(foot, vg.Point{X: c.Center().X, Y: margin}, evaluationKey)
	low := margin + keyPitch
	c.Min.Y, c.Max.Y = low, low+e.legend.height()
	e.legend.draw(c)
}

func (e *evaluation) drawPanels(c draw.Canvas) {
	tiles := draw.Tiles{Rows: 1, Cols: 2, PadTop: panelTitle, PadBottom: axisPitch, PadX: panelGap}
	panels := []struct {
		title, axis string
		plot        *plot.Plot
	}{
		{"Share that came true, by score", "score", e.reliability()},
		{"Recall@K of the next layer, by layer", "layer", e.recall()},
	}
	title, axis := bold(textStyle(10, ink)), textStyle(tickSize, faint)
	axis.XAlign = text.XCenter
	canvases := plot.Align([][]*plot.Plot{{panels[0].plot, panels[1].plot}}, tiles, c)
	for i, p := range panels {
		at := canvases[0][i]
		p.plot.Draw(at)
		c.FillText(title, vg.Point{X: at.Min.X, Y: at.Max.Y + 7}, p.title)
		data := p.plot.DataCanvas(at)
		c.FillText(axis, vg.Point{X: data.Center().X, Y: at.Min.Y - axisPitch + 3}, p.axis)
	}
}

// reliability draws the panel of calibration, above the line that a calibrated
// forecast follows.
func (e *evaluation) reliability() *plot.Plot {
	pl := e.panel(func(l EvaluationLine) (xys plotter.XYs) {
		for _, r := range l.Reliability {
			xys = append(xys, plotter.XY{X: r.Score, Y: r.Used})
		}
		return xys
	}, curve{points: plotter.XYs{{X: 0, Y: 0}, {X: 1, Y: 1}}, style: style{line: draw.LineStyle{Color: boundColors[3], Width: vg.Points(1)}}})
	// Half a marker of room, so that both ends stay within.
	pl.X.Min, pl.X.Max, pl.X.Tick.Marker = -0.02, 1.02, shareOfOne()
	return pl
}

func (e *evaluation) recall() *plot.Plot {
	pl := e.panel(func(l EvaluationLine) (xys plotter.XYs) {
		for layer, v := range l.Recall {
			xys = append(xys, plotter.XY{X: float64(layer), Y: v})
		}
		return xys
	})
	last := float64(max(e.layers-1, 1))
	pl.X.Min, pl.X.Max, pl.X.Tick.Marker = -last/50, last*51/50, layerTicks(e.layers)
	return pl
}

// panel draws a line for each predictor, bounds first and what is named first on
// top, from 0 to 1.
func (e *evaluation) panel(points func(EvaluationLine) plotter.XYs, below ...plot.Plotter) *plot.Plot {
	pl := newPlot()
	pl.Add(&plotter.Grid{Vertical: gridLine(), Horizontal: gridLine()})
	pl.Add(below...)
	for _, bound := range []bool{true, false} {
		for i := len(e.lines) - 1; i >= 0; i-- {
			s, xys := e.styles[e.lines[i].Name], points(e.lines[i])
			if len(xys) > 0 && (s.kind == bounds) == bound {
				pl.Add(curve{points: xys, style: s})
			}
		}
	}
	pl.Y.Min, pl.Y.Max, pl.Y.Tick.Marker = -0.02, 1.02, shareOfOne()
	return pl
}

// shareOfOne are ticks from 0 to 1.
func shareOfOne() (ticks plot.ConstantTicks) {
	for i := range 6 {
		ticks = append(ticks, plot.Tick{Value: float64(i) / 5, Label: number(float64(i)/5, 2)})
	}
	return ticks
}

// layerTicks mark at most nine layers, a round step apart, from 0.
func layerTicks(layers int) (ticks plot.ConstantTicks) {
	step := 1
	for unit := 1; (layers-1)/step > 8; unit *= 10 {
		for _, s := range []int{1, 2, 5} {
			if step = s * unit; (layers-1)/step <= 8 {
				break
			}
		}
	}
	for l := 0; l < max(layers, 1); l += step {
		ticks = append(ticks, plot.Tick{Value: float64(l), Label: number(float64(l), int(math.Log10(maxLayers))+1)})
	}
	return ticks
}
