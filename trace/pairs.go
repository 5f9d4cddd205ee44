package trace

import "math"

// pairCounts counts, for each layer, how often an expert (of the token before,
// or of the layer before) came along with an expert of this layer.
type pairCounts struct {
	experts int
	counts  [][]uint32 // by layer: from*experts + to; nil where that is too much memory
	totals  []uint64   // by layer
}

func newPairCounts(layers, experts int) pairCounts {
	p := pairCounts{experts: experts, totals: make([]uint64, layers)}
	if int64(layers)*int64(experts)*int64(experts) > maxPairs {
		return p
	}
	p.counts = make([][]uint32, layers)
	for l := range p.counts {
		p.counts[l] = make([]uint32, experts*experts)
	}
	return p
}

// add counts all pairs of two rows; from may hold fill.
func (p *pairCounts) add(layer int, from, to []int32) {
	if p.counts == nil {
		return
	}
	counts := p.counts[layer]
	for _, a := range from {
		if a < 0 {
			break
		}
		row := counts[int(a)*p.experts : (int(a)+1)*p.experts]
		for _, b := range to {
			row[b]++
		}
		p.totals[layer] += uint64(len(to))
	}
}

// enough reports whether a layer has as many pairs as the estimate needs.
func (p *pairCounts) enough(layer int) bool {
	return p.counts != nil && p.totals[layer] >= 2*uint64(p.experts)*uint64(p.experts)
}

// information estimates the mutual information of a pair, in bits.
//
// Counted naively it is above 0 even for rows drawn at random: 2*ln2*n times it
// is then about chi-square distributed. Rows are topK of E without repetition,
// which makes its mean (E-topK)^2 instead of the (E-1)^2 of single draws. That
// is what is taken off.
func (p *pairCounts) information(layer, topK int) float64 {
	counts, n := p.counts[layer], float64(p.totals[layer])
	from, to := make([]float64, p.experts), make([]float64, p.experts)
	for i, c := range counts {
		from[i/p.experts] += float64(c)
		to[i%p.experts] += float64(c)
	}
	bits := 0.0
	for i, c := range counts {
		if c > 0 {
			f := float64(c)
			bits += f / n * math.Log2(f*n/(from[i/p.experts]*to[i%p.experts]))
		}
	}
	free := float64(p.experts - topK)
	return max(bits-free*free/(2*math.Ln2*n), 0)
}
