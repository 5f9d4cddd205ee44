package learned

import (
	"fmt"

	"outrider/layout"
	"outrider/router"
	"outrider/trace"
)

// Predictor forecasts with a network over an online predictor, which goes on
// learning; of the network only how far to follow it is learned, for each layer.
type Predictor struct {
	model  *Model
	online *router.Online
	blends []blend // by layer
}

var (
	_ router.Saver     = (*Predictor)(nil)
	_ router.Outlooker = (*history)(nil)
)

// New makes a predictor over an online one that has seen nothing.
func New(m *Model) (router.Predictor, error) {
	o, err := router.NewOnline(m.dims.Shape, router.OnlineOptions{})
	if err != nil {
		return nil, err
	}
	return NewOver(m, o)
}

// NewOver makes a predictor over an online one that may have learned already. It
// must be for a model of the same shape (router.ErrShape), and learns from the
// predictor's histories.
func NewOver(m *Model, o *router.Online) (router.Predictor, error) {
	if s, got := m.dims.Shape, o.Shape(); !got.SameSize(s) {
		return nil, fmt.Errorf("learned: %w: the network is for %q with %d layers × %d experts, top %d, the online predictor for %d × %d, top %d", router.ErrShape,
			m.name, s.Layers, s.Experts, s.TopK, got.Layers, got.Experts, got.TopK)
	}
	p := &Predictor{model: m, online: o, blends: make([]blend, m.dims.Shape.Layers)}
	for l := range p.blends {
		p.blends[l].weight = 1
	}
	return p, nil
}

// Shape is the shape of the model that is forecast.
func (p *Predictor) Shape() layout.Shape { return p.model.dims.Shape }

// VisitState visits what the online predictor has learned, and how far the network
// is followed. The network is not part of a saved forecast: it has its own file.
func (p *Predictor) VisitState(s *router.State) {
	s.Inner(p.online)
	for l := range p.blends {
		b := &p.blends[l]
		s.Section(fmt.Sprintf("layer %d", l), &b.mu, func() {
			s.Revision(1)
			s.Float(&b.weight, 0, blendMost)
			s.Float(&b.curvature, 0, blendCurvature)
		})
	}
}

// Name is "learned".
func (p *Predictor) Name() string { return "learned" }

// Follow is how far the network is followed in a layer: 0 not at all, 1 as it was
// trained, 1.5 at most. The layer must exist.
func (p *Predictor) Follow(layer int) float64 {
	b := &p.blends[layer]
	b.mu.Lock()
	defer b.mu.Unlock()
	return float64(b.weight)
}

// NewHistory starts a sequence. Beyond the online history it takes eight bytes for
// each layer and expert.
func (p *Predictor) NewHistory() router.History {
	shape := p.model.dims.Shape
	h := &history{predictor: p, model: p.model, recent: NewRecent(shape), scratch: p.model.NewScratch(), used: make([]bool, shape.Experts)}
	h.online = p.online.NewHistory().(router.Featured) // those of Online are
	both := make([]float32, 2*shape.Layers*shape.Experts)
	h.opinions = make([]opinion, shape.Layers)
	for l := range h.opinions {
		at := both[2*l*shape.Experts:][:2*shape.Experts]
		h.opinions[l].online, h.opinions[l].other = at[:shape.Experts], at[shape.Experts:]
	}
	return h
}

// history is one sequence as the network sees it.
type history struct {
	predictor *Predictor
	model     *Model
	online    router.Featured
	recent    *Recent
	scratch   *Scratch
	opinions  []opinion // by layer, of the forecast asked for latest
	used      []bool    // scratch
}

// Begin starts a pass.
func (h *history) Begin(phase trace.Phase, tokens []int32) {
	h.online.Begin(phase, tokens)
	h.recent.Begin(tokens)
}

// Observe tells a choice, from which the online predictor learns.
func (h *history) Observe(layer int, choices []router.Choice) {
	h.judge(layer, choices)
	h.online.Observe(layer, choices)
	h.recent.Observe(layer, choices)
}

// judge compares the layer's latest forecast with what a single token chose.
func (h *history) judge(layer int, choices []router.Choice) {
	if layer < 0 || layer >= len(h.opinions) || !h.opinions[layer].due {
		return
	}
	o := &h.opinions[layer]
	o.due = false
	if len(choices) != 1 || !h.note(choices[0].Experts, true) {
		return
	}
	h.predictor.blends[layer].learn(o, h.used)
	h.note(choices[0].Experts, false)
}

// note marks experts that exist as used or not, and reports whether there are any.
func (h *history) note(experts []int32, used bool) (any bool) {
	for _, e := range experts {
		if uint(e) < uint(len(h.used)) {
			h.used[e], any = used, true
		}
	}
	return any
}

// Score forecasts a layer. A layer that does not exist scores 0.
func (h *history) Score(layer int, dst []float32) {
	shape := h.model.dims.Shape
	if layer < 0 || layer >= shape.Layers || len(dst) != shape.Experts || !h.recent.Single() {
		h.online.Score(layer, dst)
		return
	}
	columns := h.scratch.Columns()
	h.online.Features(layer, columns)
	h.model.LogOdds(layer, h.recent.View(layer), h.scratch, dst)
	h.predictor.blends[layer].mix(&h.opinions[layer], columns[len(columns)-shape.Experts:], dst)
	for e, z := range dst {
		dst[e] = sigmoid(z)
	}
}

// Outlook is the online predictor's, shifted to the network's forecast.
func (h *history) Outlook(layer int, next, dst []float32) bool {
	far, ok := h.online.(router.Outlooker)
	return ok && far.Outlook(layer, next, dst)
}
