package synth

import (
	"math"
	"slices"
)

// gateSteps is how finely a gate's logit, 0 to -4, is told.
const gateSteps = 1024

// gates draws gate weights.
type gates struct {
	exp  []uint64 // by step below 0, times 2^32
	step []int
}

func newGates(topK int) gates {
	g := gates{exp: make([]uint64, gateSteps), step: make([]int, topK)}
	for i := range g.exp {
		g.exp[i] = uint64(math.Round((1 << 32) * math.Exp(-4*float64(i)/gateSteps)))
	}
	return g
}

// draw fills a row with weights that sum to 1, the largest first.
func (g *gates) draw(rng random, row []float32) {
	sum := uint64(0)
	for i := range row {
		g.step[i] = int(rng.below(gateSteps))
		sum += g.exp[g.step[i]]
	}
	slices.Sort(g.step)
	for i, step := range g.step {
		row[i] = float32(float64(g.exp[step]) / float64(sum))
	}
}
