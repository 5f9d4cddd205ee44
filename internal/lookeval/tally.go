package lookeval

import (
	"math"
	"slices"

	"outrider/layout"
	"outrider/router"
)

// tally adds up forecasts by distance and layer.
type tally struct {
	name  string
	topK  int
	cells [][]cell // [distance][layer]
	bins  [][bins]bin
}

type cell struct {
	n                  float64
	k, k15, k2, losses float64
}

const bins = 10

type bin struct{ n, p, used float64 }

func newTally(name string, ahead int, shape layout.Shape) *tally {
	t := &tally{name: name, topK: shape.TopK, cells: make([][]cell, ahead+1), bins: make([][bins]bin, ahead+1)}
	for d := range t.cells {
		t.cells[d] = make([]cell, shape.Layers)
	}
	return t
}

// add counts one forecast of a layer.
func (t *tally) add(ahead, layer int, p []float32, used []int32) {
	c := &t.cells[ahead][layer]
	c.n++
	c.k += router.Found(p, used, t.topK)
	c.k15 += router.Found(p, used, (3*t.topK+1)/2)
	c.k2 += router.Found(p, used, 2*t.topK)
	for e, x := range p {
		q, truth := min(max(float64(x), 1e-6), 1-1e-6), 0.0
		b := &t.bins[ahead][min(int(q*bins), bins-1)]
		if slices.Contains(used, int32(e)) {
			truth = 1
			c.losses -= math.Log(q) / float64(len(p))
		} else {
			c.losses -= math.Log(1-q) / float64(len(p))
		}
		b.n++
		b.p += q
		b.used += truth
	}
}

// rows are the means, a row a distance.
func (t *tally) rows() []Row {
	var out []Row
	for d := 1; d < len(t.cells); d++ {
		row := Row{Source: t.name, Ahead: d, Layers: make([]float64, len(t.cells[d]))}
		var sum cell
		for l, c := range t.cells[d] {
			if c.n > 0 {
				row.Layers[l] = c.k / c.n
			}
			sum.n += c.n
			sum.k += c.k
			sum.k15 += c.k15
			sum.k2 += c.k2
			sum.losses += c.losses
		}
		row.RecallAtK, row.RecallAt15K, row.RecallAt2K = sum.k/sum.n, sum.k15/sum.n, sum.k2/sum.n
		loss, wrong, all := sum.losses/sum.n, 0.0, 0.0
		for _, b := range t.bins[d] {
			wrong += math.Abs(b.p - b.used)
			all += b.n
		}
		wrong /= all
		row.LogLoss, row.CalibrationError = &loss, &wrong
		out = append(out, row)
	}
	return out
}
