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

// Candidates appends to dst what the sequences look forward to and have not
// behind them: every expert of those layers that is at all likely.
func Candidates(dst []Candidate, s *router.Sequences) []Candidate {
	for _, q := range s.All() {
		if !q.Active() {
			continue
		}
		for _, a := range q.Ahead() {
			if a.NeededBy <= s.Now() {
				continue
			}
			for i, p := range q.Scores(a.Layer) {
				if p >= leastP {
					id := layout.ExpertID{Layer: int32(a.Layer), Index: int32(i)}
					dst = append(dst, Candidate{ID: id, P: p, NeededBy: a.NeededBy})
				}
			}
		}
	}
	return dst
}

// Sort puts candidates into the order in which they are read: by need, then by
// probability.
func Sort(list []Candidate, shape layout.Shape) {
	slices.SortFunc(list, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(a.NeededBy, b.NeededBy), cmp.Compare(b.P, a.P),
			cmp.Compare(shape.Ordinal(a.ID), shape.Ordinal(b.ID)))
	})
}

// Fill queues those candidates of a sorted list that pay, with ahead reads to be
// served before them. Skip, if not nil, names those under way.
func (a Admission) Fill(q *Queue, list []Candidate, ahead int, skip func(layout.ExpertID) bool) (queued, rejected int) {
	for _, c := range list {
		switch {
		case skip != nil && skip(c.ID):
		case !a.Admit(c, ahead):
			rejected++
		case q.Push(Item{ID: c.ID, Class: SpeculativeClass(c.NeededBy, a.Step), NeededBy: c.NeededBy, P: c.P}):
			queued++
			ahead++
		}
	}
	return queued, rejected
}
