package router

import (
	"math"

	"outrider/layout"
)

// Guesser applies routers to hidden states of layers before theirs: it is how a
// Lookahead makes hints. The hidden state changes little from layer to layer, so
// that a layer's router foretells its choice from the state that an earlier
// layer's router saw. (That earlier state was normalised with the earlier layer's
// weights, which the guess leaves as they are.) Not safe for concurrent use; it
// allocates nothing after NewGuesser.
type Guesser struct {
	rule   layout.RouterRule
	topK   int
	score  []float32 // by which the router chooses
	groups []float32
	top    []float32 // the K+1 highest scores, falling
	ids    []int32
	p      []float32
}

// NewGuesser makes a guesser for routers of a valid shape and a rule that
// belongs to it.
func NewGuesser(shape layout.Shape, rule layout.RouterRule) *Guesser {
	n := shape.Experts
	return &Guesser{rule: rule, topK: shape.TopK, score: make([]float32, n), groups: make([]float32, max(rule.Groups, 1)),
		top: make([]float32, 0, shape.TopK+1),
		ids: make([]int32, 0, n), p: make([]float32, 0, n)}
}

// Guess says which experts a router would choose from a hidden state: all that
// it may choose, and for each how likely that is as far as the scores tell: the
// distance to the line between the K-th and the next best, in units of the
// scores' spread, through a sigmoid. How much such a guess is worth a Hinted
// learns. ids and p are valid until the next call. A hidden state of another
// width than the matrix, or one that is not finite, gives none.
func (g *Guesser) Guess(m *layout.RouterMatrix, hidden []float32) (ids []int32, p []float32) {
	n := len(g.score)
	if len(hidden) == 0 || len(m.Weight) != n*len(hidden) {
		return nil, nil
	}
	products(m.Weight, hidden, g.score)
	if len(m.Bias) == n {
		for e, b := range m.Bias {
			g.score[e] += b
		}
	}
	if !finite(g.score) {
		return nil, nil
	}
	if g.rule.Groups > 1 || m.Selection != nil {
		g.choosing(m.Selection)
	}
	return g.list()
}

func finite(z []float32) bool {
	for _, x := range z {
		if x-x != 0 {
			return false
		}
	}
	return true
}

// choosing turns products into the scores that the router chooses by. Where all
// compete with all and nothing is added they would stand in the same order as
// the products, so they are taken then.
func (g *Guesser) choosing(selection []float32) {
	switch g.rule.Scoring {
	case layout.ScoreSoftmax:
		softmax(g.score)
	case layout.ScoreSigmoid:
		for e, z := range g.score {
			g.score[e] = sigmoid(z)
		}
	case layout.ScoreSqrtSoftplus:
		for e, z := range g.score {
			g.score[e] = float32(math.Sqrt(float64(logLoss(z, false))))
		}
	}
	if len(selection) == len(g.score) {
		for e, b := range selection {
			g.score[e] += b
		}
	}
	if g.rule.Groups > 1 {
		g.maskGroups()
	}
}

func softmax(z []float32) {
	most := float32(math.Inf(-1))
	for _, x := range z {
		most = max(most, x)
	}
	var sum float32
	for e, x := range z {
		z[e] = fastExp(x - most)
		sum += z[e]
	}
	for e := range z {
		z[e] /= sum
	}
}

// maskGroups leaves the experts of the best groups. A group's score is the sum of
// its two highest, as in DeepSeek-V3 (arXiv:2412.19437) and llama.cpp.
func (g *Guesser) maskGroups() {
	size := len(g.score) / len(g.groups)
	for i := range g.groups {
		first, second := float32(math.Inf(-1)), float32(math.Inf(-1))
		for _, x := range g.score[i*size:][:size] {
			if x > first {
				first, second = x, first
			} else if x > second {
				second = x
			}
		}
		g.groups[i] = first
		if size > 1 {
			g.groups[i] += second
		}
	}
	for i, own := range g.groups {
		better := 0
		for j, other := range g.groups {
			if other > own || (other == own && j < i) {
				better++
			}
		}
		if better < g.rule.GroupsUsed {
			continue
		}
		for e := range size {
			g.score[i*size+e] = float32(math.Inf(-1))
		}
	}
}

// list lists the experts that are not masked.
func (g *Guesser) list() ([]int32, []float32) {
	g.ids, g.p = g.ids[:0], g.p[:0]
	var sum, squares float64
	for e, x := range g.score {
		if math.IsInf(float64(x), -1) {
			continue // masked
		}
		sum += float64(x)
		squares += float64(x) * float64(x)
		g.ids = append(g.ids, int32(e))
	}
	if len(g.ids) == 0 {
		return nil, nil
	}
	mean := sum / float64(len(g.ids))
	spread := math.Sqrt(max(squares/float64(len(g.ids))-mean*mean, 0))
	if spread == 0 {
		return nil, nil // says nothing
	}
	line, scale := g.line(), float32(guessSharpness/spread)
	for _, e := range g.ids {
		g.p = append(g.p, sigmoid((g.score[e]-line)*scale))
	}
	return g.ids, g.p
}

// guessSharpness is how many log odds a spread of the scores is worth.
const guessSharpness = 2

// line lies between the K-th and the next best score.
func (g *Guesser) line() float32 {
	top := g.top[:0]
	for _, e := range g.ids {
		x := g.score[e]
		at := len(top)
		for at > 0 && top[at-1] < x {
			at--
		}
		switch {
		case at > g.topK:
			continue
		case len(top) <= g.topK:
			top = append(top, 0)
		}
		copy(top[at+1:], top[at:])
		top[at] = x
	}
	if len(top) <= g.topK {
		return top[len(top)-1]
	}
	return (top[g.topK-1] + top[g.topK]) / 2
}

// products writes the product of each row of a matrix with x. Four rows at a
// time, so that each number of x is loaded once for four products.
func products(matrix, x, dst []float32) {
	n := len(x)
	row := 0
	for ; row+4 <= len(dst); row += 4 {
		a, b := matrix[row*n:][:n], matrix[(row+1)*n:][:n]
		c, d := matrix[(row+2)*n:][:n], matrix[(row+3)*n:][:n]
		var p, q, r, s float32
		for i, v := range x {
			p += a[i] * v
			q += b[i] * v
			r += c[i] * v
			s += d[i] * v
		}
		dst[row], dst[row+1], dst[row+2], dst[row+3] = p, q, r, s
	}
	for ; row < len(dst); row++ {
		var p float32
		for i, v := range matrix[row*n:][:n] {
			p += v * x[i]
		}
		dst[row] = p
	}
}
