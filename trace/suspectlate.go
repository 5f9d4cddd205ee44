package trace

import (
	"fmt"
	"math"
)

// What an explanation by late layers costs, against the evidence of pairs in
// standard errors: lateEach for each layer that is off, so that the fewer layers
// are blamed.
const lateEach = 0.5

// lateness is how many rows each layer is late, in the simplest explanation of
// what the pairs say: gains[l][s+2] is by how many standard errors shift s is
// better than none for the pair of layers l and l+1. A layer that goes off must
// earn shiftZ. One that comes back in step need not: where the second pair of a
// shifted layer tells nothing, one layer is likelier off than all that follow.
// Where half of the layers are off against the other half, the first are named.
func lateness(gains [][shifts]float64) []int {
	worst := math.Inf(-1)
	score := [shifts]float64{}
	for o := range score {
		score[o] = -lateCost(0, o-shiftMost)
	}
	from := make([][shifts]int, len(gains)) // by pair and the second layer's lateness: the first one's
	for l, gain := range gains {
		next := [shifts]float64{}
		for o := range next {
			next[o] = worst
			for before := range score {
				s := o - before
				if s < -shiftMost || s > shiftMost {
					continue
				}
				if v := score[before] + gain[s+shiftMost] - lateCost(before-shiftMost, o-shiftMost); v > next[o] {
					next[o], from[l][o] = v, before
				}
			}
		}
		score = next
	}
	best := shiftMost
	for o := range score {
		if score[o] > score[best] {
			best = o
		}
	}
	late := make([]int, len(gains)+1)
	for l := len(gains); l >= 0; l-- {
		late[l] = best - shiftMost
		if l > 0 {
			best = from[l-1][best]
		}
	}
	return late
}

// lateCost is that of a layer's lateness after that of the layer before.
func lateCost(before, late int) float64 {
	cost := 0.0
	if late != 0 {
		cost += lateEach
		if late != before {
			cost += shiftZ
		}
	}
	return cost
}

func (t *shiftTest) warnings() []Warning {
	if len(t.blocks) == 0 || len(t.blocks[0]) < shiftBlocks {
		return nil
	}
	told := make([][shifts]float64, len(t.blocks))
	gains := make([][shifts]float64, len(t.blocks))
	for l := range gains {
		told[l], gains[l] = t.information(l)
	}
	late := lateness(gains)
	var warnings []Warning
	for l := 0; l < len(late); l++ {
		first := l
		for l+1 < len(late) && late[l+1] == late[first] {
			l++
		}
		if late[first] != 0 {
			warnings = append(warnings, t.warning(first, l, late, told, gains))
		}
	}
	return warnings
}

// warning describes the layers first to last, all off by the same rows, by the
// pair at either edge that says so most clearly.
func (t *shiftTest) warning(first, last int, lateness []int, told, gains [][shifts]float64) Warning {
	late := lateness[first]
	l, s, best := 0, 0, math.Inf(-1)
	for _, edge := range [...]int{first - 1, last} {
		if edge < 0 || edge == len(gains) {
			continue
		}
		shift := lateness[edge+1] - lateness[edge]
		if gain := gains[edge][shift+shiftMost]; gain > best {
			l, s, best = edge, shift, gain
		}
	}
	name, its := fmt.Sprintf("layer %d (block %d) is", first, t.shape.LayerID(first)), "its"
	if last > first {
		name = fmt.Sprintf("layers %d to %d (blocks %d to %d) are", first, last, t.shape.LayerID(first), t.shape.LayerID(last))
		its = "their"
	}
	way, drop := "late", fmt.Sprintf("in each sequence, drop the first %s of %s choices and the last of the other layers", rows(late), its)
	if late < 0 {
		way, drop = "early", fmt.Sprintf("in each sequence, drop the first %s of the other layers and the last of %s choices", rows(late), its)
	}
	side := "later"
	if s < 0 {
		side = "earlier"
	}
	return Warning{
		Kind: ShiftedLayer, Layer: first, Rows: late,
		Text: fmt.Sprintf("%s out of step, %s %s: what layer %d chose tells %.2f bits an expert about what layer %d chose %s %s, "+
			"but %.2f about its choice in the same row, where it should tell most; %s",
			name, rows(late), way, l, told[l][s+shiftMost], l+1, rows(s), side, max(told[l][shiftMost], 0), drop),
	}
}

// rows is a number of rows in words.
func rows(n int) string {
	if n == 1 || n == -1 {
		return "1 row"
	}
	return fmt.Sprintf("%d rows", max(n, -n))
}
