package main

import (
	"fmt"
	"io"

	"github.com/dustin/go-humanize"

	"outrider/internal/evaluate"
	"outrider/internal/tables"
	"outrider/router"
)

// text writes what a person asked for: the table and the cold start, and more by
// flags.
func (c *evaluateCmd) text(e *evaluation) func(io.Writer) {
	return func(w io.Writer) {
		e.writeTo(w)
		e.writeColdStart(w)
		e.writeAhead(w)
		e.writeLookahead(w)
		if c.PerLayer {
			e.writeLayers(w, "recall@k of layer", func(l evaluate.Layer) string { return threeDigits(l.RecallAtK) })
			e.writeLayers(w, "covered in layer", func(l evaluate.Layer) string { return percentText(l.MissCoverage) })
		}
		if c.Calibration {
			e.writeCalibration(w)
		}
	}
}

func (e *evaluation) writeTo(w io.Writer) {
	e.Trace.writeTo(w)
	warm := ""
	if e.WarmTokens > 0 {
		warm = fmt.Sprintf("after %s tokens to warm up, ", humanize.Comma(int64(e.WarmTokens)))
	}
	fmt.Fprintf(w, "%scache of %d experts (%.4g %%), demand only\n\n", warm, e.CacheExperts, 100*e.CacheShare)
	g := tables.NewGrid("predictor", "recall@k", "@1.5k", "@2k", "precision", "guesses", "covered", "complete", "hits", "log loss", "cal. error", "score µs", "learn µs")
	for _, r := range e.Rows {
		precision := "-"
		if r.Precision != nil {
			precision = threeDigits(*r.Precision)
		}
		g.Add(r.Predictor, threeDigits(r.RecallAtK), threeDigits(r.RecallAt1p5K), threeDigits(r.RecallAt2K), precision, fmt.Sprintf("%.2f", r.Guesses),
			percentText(r.MissCoverage), percentText(&r.LayerCompleteRate), percentText(&r.Hits),
			fmt.Sprintf("%.4f", r.LogLoss), fmt.Sprintf("%.4f", r.Calibration.Error), fmt.Sprintf("%.2f", r.ScoreMicros), fmt.Sprintf("%.2f", r.LearnMicros))
	}
	g.Print(w)
}

func (e *evaluation) writeColdStart(w io.Writer) {
	if len(e.Rows) == 0 || len(e.Rows[0].ColdStart) == 0 {
		return
	}
	header := []string{"recall@k of the first"}
	for _, c := range e.Rows[0].ColdStart {
		header = append(header, fmt.Sprint(c.Tokens))
	}
	e.writeRecalls(w, append(header, "all tokens"), func(r *evaluate.Row) (cells []string) {
		for _, c := range r.ColdStart {
			cells = append(cells, threeDigits(c.AtK))
		}
		return append(cells, threeDigits(r.RecallAtK))
	})
}

func (e *evaluation) writeAhead(w io.Writer) {
	if len(e.Rows) == 0 || len(e.Rows[0].Ahead) == 0 {
		return
	}
	header := []string{"recall@k ahead by"}
	for _, a := range e.Rows[0].Ahead {
		switch a.Layers {
		case router.BeforePass:
			header = append(header, a.Layers.String())
		case 1:
			header = append(header, "1 layer")
		default:
			header = append(header, a.Layers.String()+" layers")
		}
	}
	e.writeRecalls(w, header, func(r *evaluate.Row) (cells []string) {
		for _, a := range r.Ahead {
			cells = append(cells, threeDigits(a.RecallAtK))
		}
		return cells
	})
}

// writeRecalls writes a table with a row for each predictor.
func (e *evaluation) writeRecalls(w io.Writer, header []string, cells func(*evaluate.Row) []string) {
	fmt.Fprintln(w)
	g := tables.NewGrid(header...)
	for _, r := range e.Rows {
		g.Add(append([]string{r.Predictor}, cells(r)...)...)
	}
	g.Print(w)
}

// writeLayers writes a table with a column for each predictor.
func (e *evaluation) writeLayers(w io.Writer, title string, cell func(evaluate.Layer) string) {
	fmt.Fprintln(w)
	header := []string{title}
	for _, r := range e.Rows {
		header = append(header, r.Predictor)
	}
	g := tables.NewGrid(header...)
	for l := range e.Trace.Layers {
		cells := []string{fmt.Sprint(l)}
		for _, r := range e.Rows {
			cells = append(cells, cell(r.Layers[l]))
		}
		g.Add(cells...)
	}
	g.Print(w)
}

func (e *evaluation) writeCalibration(w io.Writer) {
	fmt.Fprintln(w)
	g := tables.NewGrid("predictor", "scored", "experts", "mean", "came true")
	for _, r := range e.Rows {
		for i, b := range r.Calibration.Bins {
			if b.Count == 0 {
				continue
			}
			g.Add(r.Predictor, fmt.Sprintf("%.1f to %.1f", float64(i)/10, float64(i+1)/10), fmt.Sprint(b.Count), threeDigits(b.Score), threeDigits(b.Used))
		}
	}
	g.Print(w)
}

func threeDigits(v float64) string { return fmt.Sprintf("%.3f", v) }

func percentText(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100**v)
}
