package trace

import (
	"math"
	"slices"
)

// blockMean is a mean over blocks of rows, and its standard error.
type blockMean struct{ mean, err float64 }

// z is the mean in standard errors, at most 1000 of them either way.
func (b blockMean) z() float64 {
	if b.mean == 0 {
		return 0
	}
	return min(max(b.mean/b.err, -1000), 1000) // ±Inf without any spread
}

// interquartile is the mean of the middle half, with the standard error of a
// trimmed mean (Yuen 1974). It sorts values, of which there must be 4 or more.
func interquartile(values []float64) blockMean {
	slices.Sort(values)
	n := len(values)
	cut := n / 4
	kept := values[cut : n-cut]
	sum := 0.0
	for _, v := range kept {
		sum += v
	}
	winsorised := float64(cut)*(kept[0]+kept[len(kept)-1]) + sum
	centre, squares := winsorised/float64(n), 0.0
	for _, v := range values {
		v = min(max(v, kept[0]), kept[len(kept)-1])
		squares += (v - centre) * (v - centre)
	}
	h := float64(len(kept))
	return blockMean{mean: sum / h, err: math.Sqrt(squares / (h * (h - 1)))}
}
