package plots

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

const tickSize = 8.5 // points

// percent writes a share with at most three digits.
func percent(share float64) string { return number(100*share, 3) + " %" }

// number rounds to so many digits, and goes without an exponent where people would.
func number(v float64, digits int) string {
	short := strconv.FormatFloat(v, 'g', digits, 64)
	if rounded, err := strconv.ParseFloat(short, 64); err == nil && (rounded == 0 || rounded >= 1e-4 && rounded < 1e7) {
		return strconv.FormatFloat(rounded, 'f', -1, 64)
	}
	return short
}

// shareTicks marks the cache shares that were measured. Those whose labels would
// touch the one before keep only their mark.
func shareTicks(axis *plot.Axis, shares []float64, length vg.Length) plot.ConstantTicks {
	style := textStyle(tickSize, ink)
	var ticks plot.ConstantTicks
	free := math.Inf(-1) // where the next label may start, in points
	for _, s := range shares {
		tick := plot.Tick{Value: s}
		half := float64(style.Width(percent(s))) / 2
		if at := axis.Norm(s) * float64(length); at-half >= free {
			tick.Label = percent(s)
			free = at + half + tickSize/2
		}
		ticks = append(ticks, tick)
	}
	return ticks
}

// hitTicks go from 0 to 100 per cent.
func hitTicks() (ticks plot.ConstantTicks, top float64) {
	for i := range 6 {
		ticks = append(ticks, plot.Tick{Value: float64(i) / 5, Label: percent(float64(i) / 5)})
	}
	return ticks, 1
}

// stallTicks go from 0 to a round figure that no value is above.
func stallTicks(most float64) (ticks plot.ConstantTicks, top float64) {
	most = max(most, 0.01)
	unit := math.Pow(10, math.Floor(math.Log10(most/4)))
	step := 10 * unit
	for _, s := range []float64{1, 2, 2.5, 5} {
		if s*unit*5.5 >= most {
			step = s * unit
			break
		}
	}
	n := int(math.Ceil(most/step - 1e-9))
	for i := range n + 1 {
		ticks = append(ticks, plot.Tick{Value: float64(i) * step, Label: number(float64(i)*step, 6)})
	}
	return ticks, float64(n) * step
}
