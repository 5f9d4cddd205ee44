package plots

import (
	"fmt"
	"math"
	"slices"
)

// Data is what one picture shows.
type Data struct {
	Title    string // such as the model; may be empty
	Subtitle string // smaller, below the title; may be empty
	Points   []Point
}

// Point is the result of one run with one cache size.
type Point struct {
	Run              string  // such as "online+spec"; runs are drawn in the order in which they first appear
	CacheShare       float64 // of all experts, over 0 to 1
	Ratio            float64 // time to read a layer's experts over its compute time
	Hits             float64 // share of demanded experts, 0 to 1
	StallOverCompute float64 // exposed stall over compute time
}

// More of these cannot be read in one picture.
const (
	maxRuns   = 32
	maxRatios = 8
	maxShares = 256
)

// maxFigure is more than any stall or ratio; beyond it, labels would fill the picture.
const maxFigure = 1e9

// cell is the place of a point in the picture.
type cell struct {
	run          string
	share, ratio float64
}

// figure is Data put in order.
type figure struct {
	runs   []string  // as they first appear
	shares []float64 // ascending
	ratios []float64 // ascending
	points map[cell]Point
}

// arrange checks the points and puts them in order.
func arrange(points []Point) (*figure, error) {
	if len(points) == 0 {
		return nil, fmt.Errorf("plots: there are no points to draw")
	}
	f := &figure{points: make(map[cell]Point)}
	for i, p := range points {
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("plots: point %d (run %q): %w", i, p.Run, err)
		}
		at := cell{p.Run, p.CacheShare, p.Ratio}
		if other, ok := f.points[at]; ok && other != p {
			return nil, fmt.Errorf("plots: point %d: run %q has two results with cache share %v and ratio %v; draw them apart", i, p.Run, p.CacheShare, p.Ratio)
		}
		f.points[at] = p
		f.runs = with(f.runs, p.Run)
		f.shares = with(f.shares, p.CacheShare)
		f.ratios = with(f.ratios, p.Ratio)
		if len(f.runs) > maxRuns || len(f.ratios) > maxRatios || len(f.shares) > maxShares {
			return nil, fmt.Errorf("plots: point %d: a picture takes at most %d runs, %d ratios and %d cache shares; draw fewer at a time",
				i, maxRuns, maxRatios, maxShares)
		}
	}
	slices.Sort(f.shares)
	slices.Sort(f.ratios)
	return f, nil
}

func (p Point) check() error {
	switch {
	case p.Run == "":
		return fmt.Errorf("has no name")
	case !(p.CacheShare > 0 && p.CacheShare <= 1):
		return fmt.Errorf("cache share is %v, want more than 0 to 1", p.CacheShare)
	case !(p.Ratio > 0 && p.Ratio <= maxFigure):
		return fmt.Errorf("ratio is %v, want more than 0 to %g", p.Ratio, maxFigure)
	case !(p.Hits >= 0 && p.Hits <= 1):
		return fmt.Errorf("hits are %v, want 0 to 1", p.Hits)
	case !(p.StallOverCompute >= 0 && p.StallOverCompute <= maxFigure):
		return fmt.Errorf("stall over compute is %v, want 0 to %g", p.StallOverCompute, maxFigure)
	}
	return nil
}

// with adds a value to a list that is short by the limits above.
func with[T comparable](list []T, value T) []T {
	if slices.Contains(list, value) {
		return list
	}
	return append(list, value)
}

// hitsDependOnRatio tells whether one panel of hits is not enough: keeping alone
// hits the same at any ratio, reading ahead does not.
func (f *figure) hitsDependOnRatio() bool {
	for _, ratio := range f.ratios[1:] {
		for _, run := range f.runs {
			for _, share := range f.shares {
				first, ok := f.points[cell{run, share, f.ratios[0]}]
				p, okHere := f.points[cell{run, share, ratio}]
				if ok != okHere || first.Hits != p.Hits {
					return true
				}
			}
		}
	}
	return false
}

// logarithmic tells whether cache shares are so crowded at one end that they are
// better told apart on a logarithmic axis.
func (f *figure) logarithmic() bool {
	crowded := smallestGap(f.shares)
	logs := make([]float64, len(f.shares))
	for i, s := range f.shares {
		logs[i] = math.Log(s)
	}
	return crowded < 0.05 && crowded < smallestGap(logs)
}

// smallestGap is the least distance of neighbours over that of the first and the last.
func smallestGap(sorted []float64) float64 {
	least, all := math.Inf(1), sorted[len(sorted)-1]-sorted[0]
	for i := 1; i < len(sorted); i++ {
		least = min(least, (sorted[i]-sorted[i-1])/all)
	}
	return least
}
