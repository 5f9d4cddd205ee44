package train

import (
	"math"
	"math/rand/v2"

	"outrider/layout"
	"outrider/router"
	"outrider/router/learned"
)

// examples are forecasts that were due, and what came true.
type examples struct {
	shape   layout.Shape
	width   int       // numbers an example
	columns []float32 // [example][columns][experts]
	sets    []int32   // [example][setCount][top-k], -1 fills up
	layers  []int32
	horizon []learned.Horizon
}

// The sets of an example.
const (
	setBefore = iota
	setAgain
	setUsed // what came true
	setCount
)

// example is one of them; its slices point into the collection.
type example struct {
	layer   int
	view    learned.View
	columns []float32
	used    []int32
}

// exampleBytes is what an example takes.
func exampleBytes(shape layout.Shape) int64 {
	return 4*int64(router.FeatureColumns()*shape.Experts+setCount*shape.TopK+1) + 8
}

// newExamples makes room for as many.
func newExamples(shape layout.Shape, room int) *examples {
	width := router.FeatureColumns() * shape.Experts
	return &examples{
		shape: shape, width: width,
		columns: make([]float32, 0, room*width),
		sets:    make([]int32, 0, room*setCount*shape.TopK),
		layers:  make([]int32, 0, room),
		horizon: make([]learned.Horizon, 0, room),
	}
}

func (x *examples) len() int { return len(x.layers) }

// add takes the forecast of a layer as it is now, and what the layer will use.
func (x *examples) add(q *sequence, layer int, used []int32) {
	n := len(x.columns)
	x.columns = x.columns[:n+x.width]
	q.online.Features(layer, x.columns[n:])
	view := q.recent.View(layer)
	for _, set := range [setCount][]int32{setBefore: view.Before, setAgain: view.Again, setUsed: used} {
		for k := range x.shape.TopK {
			e := int32(-1)
			if k < len(set) {
				e = set[k]
			}
			x.sets = append(x.sets, e)
		}
	}
	x.layers = append(x.layers, int32(layer))
	x.horizon = append(x.horizon, view.Horizon)
}

func (x *examples) at(i int) example {
	set := func(kind int) []int32 {
		s := x.sets[(i*setCount+kind)*x.shape.TopK:][:x.shape.TopK]
		n := len(s)
		for n > 0 && s[n-1] < 0 {
			n--
		}
		return s[:n]
	}
	return example{
		layer:   int(x.layers[i]),
		view:    learned.View{Horizon: x.horizon[i], Before: set(setBefore), Again: set(setAgain)},
		columns: x.columns[i*x.width:][:x.width],
		used:    set(setUsed),
	}
}

// sharpness is the mean of an example's last column, the log odds.
func (x *example) sharpness(experts int) float32 {
	var sum float32
	for _, z := range x.columns[len(x.columns)-experts:] {
		sum += z
	}
	return sum / float32(experts)
}

// spread is how the columns and the sharpness lie in a collection. A column that
// hardly moves has scale 1 and is not active; the log odds always are.
type spread struct {
	centre, scale []float32
	active        []bool
}

// leastSpread is the standard deviation under which a column counts as constant.
const leastSpread = 1e-4

func (x *examples) spread() spread {
	columns, n := router.FeatureColumns(), x.shape.Experts
	sum, squares, counts := make([]float64, columns+1), make([]float64, columns+1), make([]float64, columns+1)
	count := func(column int, v float32) {
		sum[column] += float64(v)
		squares[column] += float64(v) * float64(v)
		counts[column]++
	}
	for i := range x.len() {
		e := x.at(i)
		for at, v := range e.columns {
			count(at/n, v)
		}
		count(columns, e.sharpness(n))
	}
	s := spread{centre: make([]float32, columns+1), scale: make([]float32, columns+1), active: make([]bool, columns+1)}
	for c := range sum {
		mean := sum[c] / counts[c]
		deviation := math.Sqrt(max(squares[c]/counts[c]-mean*mean, 0))
		s.scale[c] = 1
		if s.active[c] = deviation >= leastSpread || c == columns-1; s.active[c] {
			s.centre[c], s.scale[c] = float32(mean), float32(max(deviation, leastSpread))
		}
	}
	return s
}

// sampler draws need of the next left candidates, each with the same chance.
type sampler struct {
	random     *rand.Rand
	need, left int
}

func (s *sampler) take() bool {
	if s.left <= 0 {
		return false
	}
	drawn := s.random.IntN(s.left) < s.need
	s.left--
	if drawn {
		s.need--
	}
	return drawn
}
