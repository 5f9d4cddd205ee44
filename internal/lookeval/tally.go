package lookeval

import (
	"outrider/layout"
	"outrider/router"
)

// tally adds up forecasts by distance and layer.
type tally struct {
	name        string
	judge       *router.Judge
	cells       [][]cell             // [distance][layer]
	calibration []router.Calibration // by distance
}

// cell is a sum over n forecasts.
type cell struct {
	router.Recall
	n float64
}

func newTally(name string, ahead int, shape layout.Shape) *tally {
	t := &tally{name: name, judge: router.NewJudge(shape), cells: make([][]cell, ahead+1), calibration: make([]router.Calibration, ahead+1)}
	for d := range t.cells {
		t.cells[d] = make([]cell, shape.Layers)
	}
	return t
}

// add counts one forecast of a layer.
func (t *tally) add(ahead, layer int, p []float32, used []int32) {
	c := &t.cells[ahead][layer]
	c.n++
	c.Add(t.judge.Recall(p, used, &t.calibration[ahead]))
}

// rows are the means, a row a distance.
func (t *tally) rows() []Row {
	var out []Row
	for d := 1; d < len(t.cells); d++ {
		row := Row{Source: t.name, Ahead: d, Layers: make([]float64, len(t.cells[d]))}
		var sum cell
		for l, c := range t.cells[d] {
			if c.n > 0 {
				row.Layers[l] = c.AtK / c.n
			}
			sum.n += c.n
			sum.Add(c.Recall)
		}
		sum.Divide(sum.n)
		row.RecallAtK, row.RecallAt15K, row.RecallAt2K = sum.AtK, sum.At1p5K, sum.At2K
		t.calibration[d].Finish()
		row.LogLoss, row.CalibrationError = &sum.LogLoss, &t.calibration[d].Error
		out = append(out, row)
	}
	return out
}
