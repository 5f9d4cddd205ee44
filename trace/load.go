package trace

import "math"

// Load describes how the uses of a layer are spread over its experts.
type Load struct {
	Total   float64 // uses
	Entropy float64 // in bits; log2 of the experts when even, 0 without uses
	MaxMean float64 // the highest load over the mean one; 1 when even, 0 without uses
	Unused  int     // experts without a use
}

func loadOf[N uint64 | float64](loads []N) (l Load) {
	var total, most N
	for _, n := range loads {
		total += n
		most = max(most, n)
		if n == 0 {
			l.Unused++
		}
	}
	if l.Total = float64(total); total == 0 {
		return l
	}
	for _, n := range loads {
		if n > 0 {
			p := float64(n) / l.Total
			l.Entropy -= p * math.Log2(p)
		}
	}
	l.MaxMean = float64(most) * float64(len(loads)) / l.Total
	return l
}

// Load is that of a layer over all tables.
func (h *Histogram) Load(layer int) Load {
	loads := make([]float64, h.Experts)
	for _, t := range h.Tables {
		for x, n := range t.Counts[layer] {
			loads[x] += n
		}
	}
	return loadOf(loads)
}
