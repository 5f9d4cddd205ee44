package sim

import (
	"math"
	"testing"

	"outrider/internal/testtrace"
	"outrider/layout"
	"outrider/trace"
)

// belady replays demand caching by looking, for every eviction, through all of
// the future: the slow and obvious form of the optimum.
func belady(tr *trace.Trace, capacity int) (hits int) {
	shape := tr.Header.Shape
	var uses []layout.ExpertID
	for i := range tr.Len() {
		for l := range shape.Layers {
			ids, _ := tr.Row(i, l)
			for _, x := range ids {
				uses = append(uses, layout.ExpertID{Layer: int32(l), Index: x})
			}
		}
	}
	held := map[layout.ExpertID]bool{}
	for at, id := range uses {
		switch {
		case held[id]:
			hits++
			continue
		case len(held) == capacity:
			delete(held, lastUsed(held, uses[at+1:]))
		}
		held[id] = true
	}
	return hits
}

// lastUsed is the one of those held that is used last, or never.
func lastUsed(held map[layout.ExpertID]bool, future []layout.ExpertID) layout.ExpertID {
	left := map[layout.ExpertID]bool{}
	for id := range held {
		left[id] = true
	}
	for _, id := range future {
		if len(left) == 1 {
			break
		}
		delete(left, id)
	}
	for id := range left {
		return id
	}
	panic("nothing held")
}

// TestRecordedPrefixesAgainstBruteForce replays the beginnings of recorded traces
// by the obvious algorithms and by the simulation.
func TestRecordedPrefixesAgainstBruteForce(t *testing.T) {
	for _, name := range []string{"traces/gpt-oss-20b.jsonl.gz", "traces/deepseek-v2-lite-chat.jsonl.gz", "traces/mixtral-8x7b-instruct.jsonl.gz"} {
		tr := testtrace.Shared(t, name, 40)
		total := float64(len(tr.Experts))
		for _, share := range []float64{0.25, 0.5} {
			o := Options{CacheShare: share}
			capacity := int(math.Round(share * float64(tr.Header.Shape.Count())))
			if got, want := simulate(t, tr, "lru", o).Hits, float64(bruteLRU(tr, capacity))/total; math.Abs(got-want) > 1e-12 {
				t.Errorf("%s, lru at %v: got %.6f, by brute force %.6f", name, share, got, want)
			}
			if got, want := simulate(t, tr, "optimum", o).Hits, float64(belady(tr, capacity))/total; math.Abs(got-want) > 1e-12 {
				t.Errorf("%s, optimum at %v: got %.6f, by brute force %.6f", name, share, got, want)
			}
		}
	}
}
