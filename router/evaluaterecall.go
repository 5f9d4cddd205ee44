package router

import (
	"math"

	"outrider/layout"
)

// Recall is the share of the experts used that were among those scored highest,
// and what else is said of the forecasts of a layer.
type Recall struct {
	AtK     float64 `json:"recall_at_k"`    // among the top-k highest scores
	At1p5K  float64 `json:"recall_at_1_5k"` // among 1.5 × top-k, rounded up
	At2K    float64 `json:"recall_at_2k"`   // among 2 × top-k
	LogLoss float64 `json:"log_loss"`       // mean over experts, in nats; scores are clamped to 1e-6 … 1-1e-6
	// Guesses is how many experts were scored 0.5 or more, so that acting on them
	// is right more often than not; Right is how many of those were used. Both are
	// means over executions of a layer.
	Guesses float64 `json:"guesses"`
	Right   float64 `json:"right"`
}

// guess is the least score that counts as a guess.
const guess = 0.5

// Precision is the share of the guesses that were used, over all of them alike;
// false if there were none.
func (r Recall) Precision() (float64, bool) {
	if r.Guesses == 0 {
		return 0, false
	}
	return r.Right / r.Guesses, true
}

// Add sums up: Divide makes a mean of it.
func (r *Recall) Add(o Recall) {
	r.AtK += o.AtK
	r.At1p5K += o.At1p5K
	r.At2K += o.At2K
	r.LogLoss += o.LogLoss
	r.Guesses += o.Guesses
	r.Right += o.Right
}

// Divide makes a sum of n executions their mean.
func (r *Recall) Divide(n float64) {
	r.AtK /= n
	r.At1p5K /= n
	r.At2K /= n
	r.LogLoss /= n
	r.Guesses /= n
	r.Right /= n
}

// Found is the share of the experts used that are among the k highest scores,
// of equal scores those with the lower index; 1 if none was used.
func Found(p []float32, used []int32, k int) float64 {
	if len(used) == 0 {
		return 1
	}
	found := 0
	for _, e := range used {
		if rank(p, e) < k {
			found++
		}
	}
	return float64(found) / float64(len(used))
}

// rank is how many experts score higher than e.
func rank(p []float32, e int32) int {
	n, own := 0, p[e]
	for i, x := range p {
		if x > own || (x == own && i < int(e)) {
			n++
		}
	}
	return n
}

// Judge compares the scores of a layer with what was used. Not safe for
// concurrent use.
type Judge struct {
	topK int
	used []bool // of the execution that is judged
}

// NewJudge makes one for models of a shape, which must be valid.
func NewJudge(shape layout.Shape) *Judge {
	return &Judge{topK: shape.TopK, used: make([]bool, shape.Experts)}
}

// Recall judges one execution of a layer: p holds a score for each expert, used the
// distinct experts that were used. Its scores are added to c, unless that is nil.
func (j *Judge) Recall(p []float32, used []int32, c *Calibration) Recall {
	for _, e := range used {
		j.used[e] = true
	}
	out := j.recall(p, used)
	if c != nil {
		c.add(p, j.used)
	}
	for _, e := range used {
		j.used[e] = false
	}
	return out
}

// recall needs used to be marked.
func (j *Judge) recall(p []float32, used []int32) (out Recall) {
	for _, e := range used {
		switch at := rank(p, e); {
		case at < j.topK:
			out.AtK++
			fallthrough
		case at < (3*j.topK+1)/2:
			out.At1p5K++
			fallthrough
		case at < 2*j.topK:
			out.At2K++
		}
	}
	if n := float64(len(used)); n > 0 {
		out.Divide(n)
	} else {
		out.AtK, out.At1p5K, out.At2K = 1, 1, 1
	}
	for e, q := range p {
		x := min(max(probability(q), 1e-6), 1-1e-6)
		if !j.used[e] {
			x = 1 - x
		}
		out.LogLoss -= math.Log(x) / float64(len(p))
		if q >= guess {
			out.Guesses++
			if j.used[e] {
				out.Right++
			}
		}
	}
	return out
}

// probability is a score within 0 and 1; NaN counts as 0.
func probability(q float32) float64 {
	if q > 0 {
		return min(float64(q), 1)
	}
	return 0
}
