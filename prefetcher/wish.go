package prefetcher

import (
	"cmp"
	"slices"

	"outrider/layout"
	"outrider/router"
)

// leastP is the probability under which an expert is no candidate at all; the
// governor's threshold lies above it.
const leastP = 0.02

// An expert must be expected lift times as likely as the mean of its layer, unless it
// is likelier than sureP: where a pass uses many experts, an even chance of a large
// share of them is no knowledge, and reading by it brings the wrong ones as often.
const (
	lift  = 1.5
	sureP = 0.5
)

// Candidates appends to dst what the sequences look forward to and have not
// behind them: the experts of those layers that are likelier than others. Forecasts
// of several sequences for one step are joined: an expert is used unless none of
// them uses it.
func Candidates(dst []Candidate, s *router.Sequences) []Candidate {
	first := len(dst)
	for _, q := range s.All() {
		if !q.Active() {
			continue
		}
		for _, a := range q.Ahead() {
			if a.NeededBy > s.Now() {
				dst = join(dst, first, a, q.Scores(a.Layer))
			}
		}
	}
	return likely(dst, first)
}

// join merges a forecast into the row of the same layer and step among dst[first:],
// or appends one. There, each row holds all experts of a layer.
func join(dst []Candidate, first int, a router.Ahead, p []float32) []Candidate {
	for at := first; at < len(dst); at += len(p) {
		row := dst[at:][:len(p)]
		if int(row[0].ID.Layer) != a.Layer || row[0].NeededBy != a.NeededBy {
			continue
		}
		for i := range row {
			row[i].P = 1 - (1-row[i].P)*(1-p[i])
		}
		return dst
	}
	for i := range p {
		id := layout.ExpertID{Layer: int32(a.Layer), Index: int32(i)}
		dst = append(dst, Candidate{ID: id, P: p[i], NeededBy: a.NeededBy})
	}
	return dst
}

// likely keeps of the rows dst[first:] what is likely enough.
func likely(dst []Candidate, first int) []Candidate {
	kept := dst[:first]
	for rest := dst[first:]; len(rest) > 0; {
		n, sum := 0, 0.0
		for n < len(rest) && rest[n].ID.Layer == rest[0].ID.Layer && rest[n].NeededBy == rest[0].NeededBy {
			sum += float64(rest[n].P)
			n++
		}
		least := max(leastP, min(lift*sum/float64(n), sureP))
		for _, c := range rest[:n] {
			if float64(c.P) >= least {
				kept = append(kept, c)
			}
		}
		rest = rest[n:]
	}
	return kept
}

// Sort puts candidates into the order in which they are read: by need, then by
// probability.
func Sort(list []Candidate, shape layout.Shape) {
	slices.SortFunc(list, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(a.NeededBy, b.NeededBy), cmp.Compare(b.P, a.P),
			cmp.Compare(shape.Ordinal(a.ID), shape.Ordinal(b.ID)))
	})
}

// wasteShare is how many of the reads for one step may be expected to be in vain,
// over top-k.
const wasteShare = 0.4

// Fill queues those candidates of a sorted list that pay, with ahead speculative
// reads to be served before them. Skip, if not nil, names those under way.
//
// Likeliest first, it goes on for one step until 0.4 x TopK reads are expected to be
// in vain. Where the list expects more misses of the step than TopK, as in a batch,
// the bound falls in proportion: what must be read anyway leaves less to spare.
func (a Admission) Fill(q *Queue, list []Candidate, ahead int, skip func(layout.ExpertID) bool) (queued, rejected int) {
	step, left := a.Step, 0.0
	for i, c := range list {
		if c.NeededBy != step || i == 0 {
			step, left = c.NeededBy, a.spare(list[i:])
		}
		vain := 1 - min(float64(c.P), 1)
		switch {
		case skip != nil && skip(c.ID):
		case !a.Admit(c, ahead) || a.TopK > 0 && vain > left:
			rejected++
		case q.Push(Item{ID: c.ID, Class: SpeculativeClass(c.NeededBy, a.Step), NeededBy: c.NeededBy, P: c.P}):
			queued++
			ahead++
			left -= vain
		}
	}
	return queued, rejected
}

// spare is how many reads for the step of the list's first may be in vain.
func (a Admission) spare(list []Candidate) float64 {
	misses := 0.0
	for _, c := range list {
		if c.NeededBy != list[0].NeededBy {
			break
		}
		if c.P > 0 { // and a number
			misses += min(float64(c.P), 1)
		}
	}
	topK := float64(a.TopK)
	return wasteShare * topK * min(topK/max(misses, 1e-9), 1)
}
