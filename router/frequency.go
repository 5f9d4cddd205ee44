package router

import (
	"fmt"
	"sync"

	"outrider/layout"
	"outrider/trace"
)

// Frequency forecasts each expert's share of passes over all sequences, with
// no decay. It is the yardstick that any other predictor must beat.
type Frequency struct {
	shape layout.Shape

	mu   sync.Mutex
	use  [][]float32 // by layer, passes that used each expert; nil until the layer is seen
	seen []float32   // by layer, passes
}

var _ Predictor = (*Frequency)(nil)

// NewFrequency makes a predictor that has seen nothing: every expert is as
// likely as any other. It fails on a shape that is not valid.
func NewFrequency(shape layout.Shape) (*Frequency, error) {
	if err := shape.Validate(); err != nil {
		return nil, fmt.Errorf("router: frequency: %w", err)
	}
	return &Frequency{
		shape: shape,
		use:   make([][]float32, shape.Layers),
		seen:  make([]float32, shape.Layers),
	}, nil
}

// Name is "frequency".
func (f *Frequency) Name() string { return "frequency" }

// NewHistory starts a sequence.
func (f *Frequency) NewHistory() History {
	return &frequencyHistory{frequency: f, used: newMarks(f.shape.Experts)}
}

type frequencyHistory struct {
	frequency *Frequency
	used      marks
}

// Begin does nothing: only layers matter here.
func (h *frequencyHistory) Begin(trace.Phase, []int32) {}

// Observe counts one pass. Ids that the model does not have are left out.
func (h *frequencyHistory) Observe(layer int, choices []Choice) {
	f := h.frequency
	if layer < 0 || layer >= f.shape.Layers {
		return
	}
	used := h.used.union(choices)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[layer]++
	if f.use[layer] == nil {
		f.use[layer] = make([]float32, f.shape.Experts)
	}
	for _, e := range used {
		f.use[layer][e]++
	}
}

// Score forecasts a layer; one that does not exist scores 0.
func (h *frequencyHistory) Score(layer int, dst []float32) {
	f := h.frequency
	if !fits(f.shape, layer, dst) {
		clear(dst)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	base := float32(f.shape.TopK) / float32(f.shape.Experts)
	scale := 1 / (f.seen[layer] + 1)
	for e := range dst {
		dst[e] = base * scale
	}
	for e, u := range f.use[layer] {
		dst[e] = (u + base) * scale
	}
}

// Shape is the shape of the model that is forecast.
func (f *Frequency) Shape() layout.Shape { return f.shape }

// VisitState visits the counts.
func (f *Frequency) VisitState(s *State) {
	s.Section("counts", &f.mu, func() {
		s.Revision(1)
		for l := range f.use {
			if !s.Has(f.use[l] != nil, 4*f.shape.Experts) {
				continue
			}
			if f.use[l] == nil {
				f.use[l] = make([]float32, f.shape.Experts)
			}
			s.Float(&f.seen[l], 0, maxCount)
			s.Floats(f.use[l], 0, f.seen[l])
		}
	})
}

// fits reports whether a layer exists and dst has one entry an expert.
func fits(shape layout.Shape, layer int, dst []float32) bool {
	return layer >= 0 && layer < shape.Layers && len(dst) == shape.Experts
}

// marks finds the distinct experts of a pass without allocating.
type marks struct {
	round int32
	at    []int32
	list  []int32
}

func newMarks(experts int) marks {
	return marks{at: make([]int32, experts), list: make([]int32, 0, experts)}
}

// union is valid until the next call. Ids that the model does not have are
// left out.
func (m *marks) union(choices []Choice) []int32 {
	m.start()
	for _, c := range choices {
		m.add(c.Experts)
	}
	return m.list
}

func (m *marks) start() {
	m.round++
	m.list = m.list[:0]
}

func (m *marks) add(experts []int32) {
	for _, e := range experts {
		if uint(e) < uint(len(m.at)) && m.at[e] != m.round {
			m.at[e] = m.round
			m.list = append(m.list, e)
		}
	}
}
