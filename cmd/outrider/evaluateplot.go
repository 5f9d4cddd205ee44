package main

import (
	"fmt"
	"io"

	"github.com/dustin/go-humanize"

	"outrider/internal/plots"
)

// leastScores is how many scores a bin must have to be drawn: fewer tell little of
// how often they come true.
const leastScores = 50

// plotEvaluation draws calibration and recall into a file.
func plotEvaluation(path string, e *evaluation) error {
	subtitle := fmt.Sprintf("%d layers x %d experts, top %d, %s tokens", e.Trace.Layers, e.Trace.Experts, e.Trace.TopK, humanize.Comma(int64(e.Trace.Tokens)))
	if e.WarmTokens > 0 {
		subtitle += fmt.Sprintf(" after %s to warm up", humanize.Comma(int64(e.WarmTokens)))
	}
	d := plots.EvaluationData{Title: e.Trace.Model, Subtitle: subtitle}
	for _, r := range e.Rows {
		line := plots.EvaluationLine{Name: r.Predictor}
		for _, b := range r.Calibration.Bins {
			if b.Count >= leastScores {
				line.Reliability = append(line.Reliability, plots.Reliability{Score: b.Score, Used: b.Used})
			}
		}
		for _, l := range r.Layers {
			line.Recall = append(line.Recall, l.RecallAtK)
		}
		d.Lines = append(d.Lines, line)
	}
	return writePlot(path, func(w io.Writer, format string) error { return plots.Evaluation(w, format, d) })
}
