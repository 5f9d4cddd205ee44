package router

import "math"

// Calibration compares scores with what came true: where they are probabilities,
// three in ten of the experts scored 0.3 are used.
type Calibration struct {
	// Bins hold the scores of 0 to 0.1, 0.1 to 0.2 and so on, the lower end
	// included; 1 is in the last.
	Bins [10]Bin `json:"bins"`
	// Error is the expected calibration error: the mean over all scores of the
	// distance between their bin's Score and Used.
	Error float64 `json:"error"`
}

// Bin is a range of scores. Without any it is all zero.
type Bin struct {
	Count int64   `json:"count"` // scores in it: one an expert and execution of a layer
	Score float64 `json:"score"` // their mean
	Used  float64 `json:"used"`  // share of them whose expert was used
}

// add adds the scores of an execution; used marks the experts that were used.
func (c *Calibration) add(p []float32, used []bool) {
	for e, q := range p {
		x := probability(q)
		b := &c.Bins[min(int(float32(x)*float32(len(c.Bins))), len(c.Bins)-1)]
		b.Count++
		b.Score += x
		if used[e] {
			b.Used++
		}
	}
}

// Finish turns the sums that a Judge added up into means, once.
func (c *Calibration) Finish() {
	var off float64
	var all int64
	for i := range c.Bins {
		b := &c.Bins[i]
		all += b.Count
		if b.Count == 0 {
			continue
		}
		off += math.Abs(b.Score - b.Used)
		b.Score /= float64(b.Count)
		b.Used /= float64(b.Count)
	}
	if all > 0 {
		c.Error = off / float64(all)
	}
}
