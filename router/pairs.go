package router

import (
	"fmt"

	"outrider/layout"
)

// pairs counts, with decay, how often one expert followed another: for each
// source the number of passes in which it was used, and for each target how
// many of those used the target. Not safe for concurrent use.
type pairs struct {
	experts int
	count   []float32 // [source][target]
	passes  []float32 // [source]
	// logs holds log P(target | source) as of some use of the source, so that
	// scoring takes no logarithms; nil where nobody asks for evidence. They
	// are taken at every use until the source is well known, then at every
	// logsEvery-th: counts move slowly by then.
	logs []float32
	uses []uint32 // [source]
}

const (
	// pairPrior is how many passes the long-run frequency weighs as against a
	// source's own counts.
	pairPrior = 4
	// pairDecay applies at each use of the source.
	pairDecay = 0.999
	// rareDecay is that of decayEvery uses, which pairs that give evidence apply at
	// once: it costs as much as the rest of a count.
	decayEvery = 8
	rareDecay  = 1 - decayEvery*(1-pairDecay)

	wellKnown = 32 // uses of a source
	logsEvery = 8
)

// maxPairs bounds the memory for pairs of experts in all layers, so that the
// header of a damaged trace cannot ask for all there is: 128 MiB a matrix. The
// largest models known need less than half of it.
const maxPairs = 1 << 25

// checkPairs reports whether a shape's pairs of experts can be counted.
func checkPairs(name string, shape layout.Shape) error {
	if n := shape.Count() * shape.Experts; n > maxPairs {
		return fmt.Errorf("router: %s: %w: %d layers × %d experts make %d pairs, at most %d can be counted; use recency or frequency", name,
			ErrShape, shape.Layers, shape.Experts, n, maxPairs)
	}
	return nil
}

func newPairs(experts int) pairs {
	return pairs{
		experts: experts,
		count:   make([]float32, experts*experts),
		passes:  make([]float32, experts),
	}
}

func newEvidencePairs(experts int) pairs {
	p := newPairs(experts)
	p.logs = make([]float32, experts*experts)
	p.uses = make([]uint32, experts)
	return p
}

// add counts one pass in which all of from were followed by all of to. long is
// needed by pairs that give evidence.
func (p *pairs) add(from, to []int32, long *longRun) {
	for _, i := range from {
		row := p.count[int(i)*p.experts:][:p.experts]
		switch {
		case p.logs == nil:
			p.decay(row, i, pairDecay)
		case p.uses[i]%decayEvery == decayEvery-1:
			p.decay(row, i, rareDecay)
		}
		for _, j := range to {
			row[j]++
		}
		p.passes[i]++
		if p.logs != nil {
			p.takeLogs(i, long)
		}
	}
}

func (p *pairs) decay(row []float32, source int32, keep float32) {
	for j := range row {
		row[j] *= keep
	}
	p.passes[source] *= keep
}

func (p *pairs) takeLogs(source int32, long *longRun) {
	p.uses[source]++
	if n := p.uses[source]; n > wellKnown && n%logsEvery != 0 {
		return
	}
	row := p.count[int(source)*p.experts:][:p.experts]
	logs, prior := p.logs[int(source)*p.experts:][:len(row)], long.p[:len(row)]
	scale := 1 / (p.passes[source] + pairPrior)
	for j, c := range row {
		logs[j] = fastLog((c + pairPrior*prior[j]) * scale)
	}
}

// evidence writes what the sources say of each target: the log likelihood ratio
// against the long-run frequency, summed over the sources as if they were
// independent.
func (p *pairs) evidence(from *source, long *longRun, ratio []float32) {
	clear(ratio)
	// A source that was never seen has logs of 0: it says nothing of any expert, and
	// counts for nothing.
	weights := from.addRows(p.logs, ratio)
	for at, i := range from.experts {
		if p.passes[i] == 0 {
			weights -= from.weight(at)
		}
	}
	axpy(-weights, long.log, ratio)
}

// source is a choice that foretells another one.
type source struct {
	experts []int32
	gates   []float32 // by expert, gate weight times top-k; nil where not known
}

// weight is how much the source's at-th expert counts, 1 on average: half for
// being chosen at all, half by its gate weight.
func (s *source) weight(at int) float32 {
	if s.gates == nil {
		return 1
	}
	return 0.5 + 0.5*s.gates[s.experts[at]]
}

// addRows adds to dst, for each expert of the source, its row of a matrix times its
// weight. It returns the sum of the weights.
func (s *source) addRows(matrix, dst []float32) (sum float32) {
	n, at := len(dst), 0
	for ; at+4 <= len(s.experts); at += 4 {
		x := (*[4]int32)(s.experts[at:])
		w := [4]float32{s.weight(at), s.weight(at + 1), s.weight(at + 2), s.weight(at + 3)}
		axpy4(&w, matrix[int(x[0])*n:][:n], matrix[int(x[1])*n:][:n], matrix[int(x[2])*n:][:n], matrix[int(x[3])*n:][:n], dst)
		sum += w[0] + w[1] + w[2] + w[3]
	}
	for ; at < len(s.experts); at++ {
		w := s.weight(at)
		axpy(w, matrix[int(s.experts[at])*n:][:n], dst)
		sum += w
	}
	return sum
}

// Kinds of source, in the order in which heads use them.
const (
	sourceAgain = iota // what the last token used in the same layer
	sourceSkip         // what the pass used two layers before
	sourceNear         // what the pass used in the layer before
	sourceCount
)

// sources holds one of each kind; one that is not known is empty.
type sources [sourceCount]source

// longRun is the long-run frequency of each expert of a layer, and what is
// often asked of it.
type longRun struct {
	p, inverse, log, odds []float32

	known   bool
	version int // of the state that it was taken from
}

func newLongRun(experts int) longRun {
	return longRun{p: make([]float32, experts), inverse: make([]float32, experts), log: make([]float32, experts), odds: make([]float32, experts)}
}

// derive makes the rest from p.
func (l *longRun) derive() {
	for e, p := range l.p {
		l.inverse[e], l.log[e], l.odds[e] = 1/p, fastLog(p), logOdds(p)
	}
}
