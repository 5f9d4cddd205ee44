package prefetcher

import (
	"math"
	"testing"

	"outrider/layout"
	"outrider/router"
	"outrider/trace"
)

// told is a predictor whose forecasts a test sets, one row for each history.
type told struct {
	rows [][]float32
	next int
}

func (t *told) Name() string { return "told" }

func (t *told) NewHistory() router.History {
	t.next++
	return toldHistory{t.rows[t.next-1]}
}

type toldHistory struct{ p []float32 }

func (toldHistory) Begin(trace.Phase, []int32)       {}
func (toldHistory) Observe(int, []router.Choice)     {}
func (h toldHistory) Score(layer int, dst []float32) { copy(dst, h.p) }

// wishes is what sequences with these forecasts want of the next layer.
func wishes(shape layout.Shape, rows ...[]float32) map[int32]float32 {
	s := router.NewSequences(shape, &told{rows: rows}, nil, nil)
	for range rows {
		q := s.Open(0)
		q.Observe(0, 0, []router.Choice{{Experts: []int32{0}}})
		q.LookAhead(1)
	}
	got := map[int32]float32{}
	for _, c := range Candidates(nil, s) {
		if c.ID.Layer == 1 && c.NeededBy == 1 {
			got[c.ID.Index] += c.P
		}
	}
	return got
}

func TestCandidatesAreLikelierThanTheirLayer(t *testing.T) {
	shape := layout.Shape{Layers: 3, Experts: 4, TopK: 1}
	nan := float32(math.NaN())
	for _, c := range []struct {
		name string
		rows [][]float32
		want map[int32]float32
	}{
		{"mean 0.25", [][]float32{{0.5, 0.4, 0.1, 0}}, map[int32]float32{0: 0.5, 1: 0.4}},
		{"even: nothing is known", [][]float32{{0.25, 0.25, 0.25, 0.25}}, map[int32]float32{}},
		{"even, but likelier than not", [][]float32{{0.6, 0.6, 0.6, 0.6}}, map[int32]float32{0: 0.6, 1: 0.6, 2: 0.6, 3: 0.6}},
		{"next to nothing", [][]float32{{0.01, 0, 0, 0}}, map[int32]float32{}},
		{"joined", [][]float32{{0.5, 0.5, 0, 0}, {0.5, 0, 0.1, 0}}, map[int32]float32{0: 0.75, 1: 0.5}},
		{"not a number", [][]float32{{nan, 0.9, 0, 0}}, map[int32]float32{}},
	} {
		got := wishes(shape, c.rows...)
		if len(got) != len(c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
			continue
		}
		for e, p := range c.want {
			if math.Abs(float64(got[e]-p)) > 1e-6 {
				t.Errorf("%s, expert %d: got %v, want %v", c.name, e, got[e], p)
			}
		}
	}
}

func TestCandidatesAppend(t *testing.T) {
	shape := layout.Shape{Layers: 3, Experts: 4, TopK: 1}
	s := router.NewSequences(shape, &told{rows: [][]float32{{0.9, 0, 0, 0}}}, nil, nil)
	q := s.Open(5)
	q.Observe(5, 1, []router.Choice{{Experts: []int32{0}}})
	q.LookAhead(2)
	old := Candidate{ID: eid(2, 3), P: 0.001, NeededBy: 6}
	got := Candidates([]Candidate{old}, s)
	if len(got) != 3 || got[0] != old || got[1].ID != eid(2, 0) || got[2].ID != eid(0, 0) {
		t.Errorf("got %v, want %v and expert 0 of layers 2 and 0", got, old)
	}
}

func TestFillStopsWhereReadsAreInVain(t *testing.T) {
	shape := layout.Shape{Layers: 4, Experts: 64, TopK: 4}
	row := func(neededBy int64, n int, p float32) (list []Candidate) {
		for i := range n {
			list = append(list, Candidate{ID: eid(int(neededBy), i), P: p, NeededBy: neededBy})
		}
		return list
	}
	for _, c := range []struct {
		name string
		list []Candidate
		topK int
		want int
	}{
		{"no bound", row(1, 10, 0.5), 0, 10},
		{"1.6 reads may be in vain: three of half a read", row(1, 8, 0.5), 4, 3},
		{"for each step anew", append(row(1, 8, 0.5), row(2, 8, 0.5)...), 4, 6},
		{"twice the misses of a token, half the bound", row(1, 16, 0.5), 4, 1},
		{"sure ones waste nothing", row(1, 40, 1), 4, 40},
		{"a number over 1 gives nothing back", append(row(1, 1, 50), row(1, 9, 0.5)[1:]...), 4, 3},
		{"not a number", row(1, 4, float32(math.NaN())), 4, 0},
	} {
		q := NewQueue(shape, 0)
		queued, rejected := Admission{Threshold: 0.2, TopK: c.topK}.Fill(q, c.list, 0, nil)
		if queued != c.want || queued+rejected != len(c.list) || q.Len(Near)+q.Len(Far) != queued {
			t.Errorf("%s: got %d queued and %d rejected of %d, want %d queued", c.name, queued, rejected, len(c.list), c.want)
		}
	}
}
