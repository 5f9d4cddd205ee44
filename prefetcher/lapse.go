package prefetcher

import "outrider/layout"

// lapseCycles is after how many cycles of the layers a speculative read that was not
// used when it was due is dropped; when speculation is switched off, all are that are
// due.
//
// A forecast that is wrong is often wrong again about the same expert: it then also
// ranks as one to keep, holds its room and is never read again, so that no count of
// wrong reads tells. Recorded traces lose nothing by this: within four cycles nearly
// all that will be used has been.
const lapseCycles = 4

// Lapses finds the speculative reads that have been due for long: those that are still
// unused are to be dropped (experts.Cache.Lapse). Not safe for concurrent use.
type Lapses struct {
	shape layout.Shape
	due   []int64 // by ordinal, the step that the latest read was meant for; never
	queue []Candidate
	head  int // of queue
}

const never = -1

// NewLapses makes one that knows of no reads.
func NewLapses(shape layout.Shape) *Lapses {
	l := &Lapses{shape: shape, due: make([]int64, shape.Count())}
	for i := range l.due {
		l.due[i] = never
	}
	return l
}

// Begun notes a speculative read.
func (l *Lapses) Begun(id layout.ExpertID, neededBy int64) {
	l.due[l.shape.Ordinal(id)] = neededBy
	if l.head > 64 && l.head > len(l.queue)/2 {
		l.queue = l.queue[:copy(l.queue, l.queue[l.head:])]
		l.head = 0
	}
	l.queue = append(l.queue, Candidate{ID: id, NeededBy: neededBy})
}

// Next takes out a read that lapses in a step, or reports that there is none. They are
// looked at in the order they were begun, which is nearly that in which they are
// needed. Off says that speculation is switched off.
func (l *Lapses) Next(step int64, off bool) (id layout.ExpertID, ok bool) {
	before := step - lapseCycles*int64(l.shape.Layers)
	if off {
		before = step
	}
	for l.head < len(l.queue) {
		c := l.queue[l.head]
		due := &l.due[l.shape.Ordinal(c.ID)]
		latest := *due == c.NeededBy // not read again since
		if latest && c.NeededBy >= before {
			return c.ID, false
		}
		l.head++
		if latest {
			*due = never
			return c.ID, true
		}
	}
	return id, false
}
