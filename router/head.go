package router

import "math"

// head is one logistic regression: a weight a feature column, a bias an expert
// and ties, trained one pass at a time. Not safe for concurrent use.
type head struct {
	weight []float32
	speed  []float32 // AdaGrad: decayed sum of squared gradients a weight
	bias   []float32 // one an expert
	ties   [sourceCount][]float32
	uses   [sourceCount][]uint32 // of each source of ties
}

const (
	stepSize  = 0.05  // of AdaGrad
	biasSize  = 0.02  // step of the bias of an expert
	tieSize   = 0.1   // step of a source's ties when it is new; it falls with the root of its uses
	tieLeast  = 0.015 // and to this at least
	tieUses   = 50    // uses by which the step has fallen to 0.7 of that
	maxUses   = 1 << 20
	speedKeep = 0.9995 // decay of AdaGrad's sum a pass, so that weights can still follow a drift
)

// newHead makes a head that starts from the given weights, with ties from the
// first so many kinds of source.
func newHead(start []float32, experts, kinds int) head {
	h := head{
		weight: append([]float32(nil), start...),
		speed:  make([]float32, len(start)),
		bias:   make([]float32, experts),
	}
	for i := range h.speed {
		h.speed[i] = 1
	}
	for i := range kinds {
		h.ties[i] = make([]float32, experts*experts)
		h.uses[i] = make([]uint32, experts)
	}
	return h
}

// score writes the probability of each expert; see sum.
func (h *head) score(columns []float32, from *sources, dst []float32) {
	h.sum(columns, from, dst)
	for e, z := range dst {
		dst[e] = sigmoid(z)
	}
}

// sum writes the log odds of each expert. columns holds at least one column a
// weight, each with len(dst) entries; from may be nil where there are no ties.
func (h *head) sum(columns []float32, from *sources, dst []float32) {
	n := len(dst)
	copy(dst, h.bias)
	for kind, ties := range h.ties {
		if ties != nil {
			from[kind].addRows(ties, dst)
		}
	}
	k := 0
	for ; k+4 <= len(h.weight); k += 4 {
		axpy4((*[4]float32)(h.weight[k:]), columns[k*n:][:n], columns[(k+1)*n:][:n], columns[(k+2)*n:][:n], columns[(k+3)*n:][:n], dst)
	}
	for ; k < len(h.weight); k++ {
		axpy(h.weight[k], columns[k*n:][:n], dst)
	}
}

// learn moves the weights towards what was used. miss is the score less the
// truth (1 or 0) of each expert.
func (h *head) learn(columns []float32, from *sources, miss []float32) {
	n := len(miss)
	k := 0
	for ; k+4 <= len(h.weight); k += 4 {
		a, b, c, d := columns[k*n:][:n], columns[(k+1)*n:][:n], columns[(k+2)*n:][:n], columns[(k+3)*n:][:n]
		ga, gb, gc, gd := dot4(miss, a, b, c, d)
		h.descend(k, ga)
		h.descend(k+1, gb)
		h.descend(k+2, gc)
		h.descend(k+3, gd)
	}
	for ; k < len(h.weight); k++ {
		var g float32
		for e, x := range columns[k*n:][:n] {
			g += x * miss[e]
		}
		h.descend(k, g)
	}
	axpy(-biasSize, miss, h.bias)
	for kind, ties := range h.ties {
		if ties == nil {
			continue
		}
		s := &from[kind]
		for at, i := range s.experts {
			axpy(-h.tieStep(kind, i)*s.weight(at), miss, ties[int(i)*n:][:n])
		}
	}
}

// tieStep is the step of one source's ties, which are learned fast while there is
// little to forget.
func (h *head) tieStep(kind int, source int32) float32 {
	uses := &h.uses[kind][source]
	if *uses < maxUses {
		*uses++
	}
	return max(tieSize/float32(math.Sqrt(1+float64(*uses)/tieUses)), tieLeast)
}

// descend takes one AdaGrad step of weight k.
func (h *head) descend(k int, gradient float32) {
	h.speed[k] = h.speed[k]*speedKeep + gradient*gradient
	h.weight[k] -= stepSize * gradient / float32(math.Sqrt(float64(h.speed[k])))
}

// dot4 is the product of x with each of four columns. Even and odd entries are summed
// apart, so that no addition waits for the one before it.
func dot4(x, a, b, c, d []float32) (sa, sb, sc, sd float32) {
	a, b, c, d = a[:len(x)], b[:len(x)], c[:len(x)], d[:len(x)]
	var ta, tb, tc, td float32
	e := 0
	for ; e+2 <= len(x); e += 2 {
		x, a, b, c, d := (*[2]float32)(x[e:]), (*[2]float32)(a[e:]), (*[2]float32)(b[e:]), (*[2]float32)(c[e:]), (*[2]float32)(d[e:])
		sa += a[0] * x[0]
		sb += b[0] * x[0]
		sc += c[0] * x[0]
		sd += d[0] * x[0]
		ta += a[1] * x[1]
		tb += b[1] * x[1]
		tc += c[1] * x[1]
		td += d[1] * x[1]
	}
	if e < len(x) {
		sa += a[e] * x[e]
		sb += b[e] * x[e]
		sc += c[e] * x[e]
		sd += d[e] * x[e]
	}
	return sa + ta, sb + tb, sc + tc, sd + td
}

// axpy4 adds w[0] times a, and so on, to y: four at once, since y is then read and
// written once.
func axpy4(w *[4]float32, a, b, c, d, y []float32) {
	a, b, c, d = a[:len(y)], b[:len(y)], c[:len(y)], d[:len(y)]
	for e := range y {
		y[e] += w[0]*a[e] + w[1]*b[e] + w[2]*c[e] + w[3]*d[e]
	}
}

// axpy adds a times x to y.
func axpy(a float32, x, y []float32) {
	y = y[:len(x)]
	i := 0
	for ; i+4 <= len(x); i += 4 {
		p, q := (*[4]float32)(x[i:]), (*[4]float32)(y[i:])
		q[0] += a * p[0]
		q[1] += a * p[1]
		q[2] += a * p[2]
		q[3] += a * p[3]
	}
	for ; i < len(x); i++ {
		y[i] += a * x[i]
	}
}
