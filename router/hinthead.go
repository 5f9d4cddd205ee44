package router

import "math"

// hintHead combines the inner forecast with a hint: a logistic regression, and
// the account of whether it pays. Not safe for concurrent use.
type hintHead struct {
	weight [hintColumns]float32
	speed  [hintColumns]float32 // AdaGrad: decayed sum of squared gradients
	// What hints get wrong of an expert time and again, and what they get wrong
	// because they do not see what the experts of the layer hinted from put out:
	// [source][expert]. nil until the first lesson.
	bias, ties []float32
	// Decayed log losses of the inner forecast alone and of the combination.
	innerLoss, ownLoss float32
}

// The features of an expert.
const (
	hintInner   = iota // log odds of the inner forecast
	hintOdds           // log odds of the hint
	hintMargin         // above the K-th best
	hintAbove          // the same, if above
	hintPlace          // one column a place
	hintColumns = hintPlace + placeCount
)

// hintStart trusts the hint, and the inner forecast to tell apart what the hint
// puts close together.
var hintStart = [hintColumns]float32{
	hintInner: 0.5, hintOdds: 0.1, hintMargin: 0.5,
	hintPlace + placeFirst: 0.7, hintPlace + placeSecond: -0.5, hintPlace + placeListed: -1, hintPlace + placeAbsent: -1.5,
}

const (
	hintStep     = 0.1    // of AdaGrad
	hintBiasStep = 0.03   // of the bias of an expert
	hintTieStep  = 0.05   // of a tie
	hintMostTies = 256    // experts of a layer beyond which there are no ties
	hintKeep     = 0.9995 // decay of AdaGrad's sum a pass
	hintLossKeep = 0.99   // decay of the losses a pass
)

func newHintHead() hintHead {
	h := hintHead{weight: hintStart}
	for i := range h.speed {
		h.speed[i] = 1
	}
	return h
}

// pays reports whether the combination is to be used.
func (h *hintHead) pays() bool { return h.ownLoss <= h.innerLoss }

// combine writes the combined log odds of each expert.
func (h *hintHead) combine(k *hint, dst []float32) {
	if h.bias == nil {
		clear(dst)
	} else {
		copy(dst, h.bias)
	}
	if h.ties != nil {
		for i, s := range k.sources {
			axpy(k.gates[i], h.ties[int(s)*len(dst):][:len(dst)], dst)
		}
	}
	for e := range dst {
		m := k.margin[e]
		dst[e] += h.weight[hintInner]*k.inner[e] + h.weight[hintOdds]*k.odds[e] + h.weight[hintMargin]*m +
			h.weight[hintAbove]*max(m, 0) + h.weight[hintPlace+int(k.place[e])]
	}
}

// score writes the combined probability of each expert.
func (h *hintHead) score(k *hint, dst []float32) {
	h.combine(k, dst)
	for e, z := range dst {
		dst[e] = sigmoid(z)
	}
}

// learn takes one step towards what was used, and keeps the account.
func (h *hintHead) learn(k *hint, used []bool) {
	if h.bias == nil {
		h.bias = make([]float32, len(used))
	}
	h.combine(k, k.miss)
	var gradient [hintColumns]float32
	var inner, own float32
	for e, u := range used {
		z := k.miss[e]
		miss := sigmoid(z)
		if u {
			miss--
		}
		m := k.margin[e]
		gradient[hintInner] += miss * k.inner[e]
		gradient[hintOdds] += miss * k.odds[e]
		gradient[hintMargin] += miss * m
		gradient[hintAbove] += miss * max(m, 0)
		gradient[hintPlace+int(k.place[e])] += miss
		k.miss[e] = miss
		inner += logLoss(k.inner[e], u)
		own += logLoss(z, u)
	}
	axpy(-hintBiasStep, k.miss, h.bias)
	h.tie(k)
	for i, g := range gradient {
		h.speed[i] = h.speed[i]*hintKeep + g*g
		h.weight[i] -= hintStep * g / float32(math.Sqrt(float64(h.speed[i])))
	}
	h.innerLoss = h.innerLoss*hintLossKeep + inner
	h.ownLoss = h.ownLoss*hintLossKeep + own
}

// tie moves the ties of the sources by the misses of their targets.
func (h *hintHead) tie(k *hint) {
	n := len(k.miss)
	if len(k.sources) == 0 || n > hintMostTies {
		return
	}
	if h.ties == nil {
		h.ties = make([]float32, n*n)
	}
	for i, s := range k.sources {
		axpy(-hintTieStep*k.gates[i], k.miss, h.ties[int(s)*n:][:n])
	}
}

// logLoss of log odds, in nats.
func logLoss(z float32, used bool) float32 {
	if used {
		z = -z
	}
	if z > 30 {
		return z
	}
	return fastLog(1 + fastExp(z))
}
