package learned

import (
	"fmt"

	"outrider/layout"
	"outrider/router"
	"outrider/trace"
)

// Predictor forecasts with a network over an online predictor, which goes on
// learning; the network does not.
type Predictor struct {
	model  *Model
	online *router.Online
}

var (
	_ router.Saver   = (*Predictor)(nil)
	_ router.History = (*history)(nil)
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
	if s, got := m.dims.Shape, o.Shape(); got.Layers != s.Layers || got.Experts != s.Experts || got.TopK != s.TopK {
		return nil, fmt.Errorf("learned: %w: the network is for %q with %d layers × %d experts, top %d, the online predictor for %d × %d, top %d", router.ErrShape,
			m.name, s.Layers, s.Experts, s.TopK, got.Layers, got.Experts, got.TopK)
	}
	return &Predictor{model: m, online: o}, nil
}

// Shape is the shape of the model that is forecast.
func (p *Predictor) Shape() layout.Shape { return p.model.dims.Shape }

// VisitState visits what the online predictor has learned. The network is not part
// of a saved forecast: it has its own file.
func (p *Predictor) VisitState(s *router.State) { s.Inner(p.online) }

// Name is "learned".
func (p *Predictor) Name() string { return "learned" }

// NewHistory starts a sequence.
func (p *Predictor) NewHistory() router.History {
	h := &history{model: p.model, recent: NewRecent(p.model.dims.Shape), scratch: p.model.NewScratch()}
	h.online = p.online.NewHistory().(router.Featured) // those of Online are
	return h
}

// history is one sequence as the network sees it.
type history struct {
	model   *Model
	online  router.Featured
	recent  *Recent
	scratch *Scratch
}

// Begin starts a pass.
func (h *history) Begin(phase trace.Phase, tokens []int32) {
	h.online.Begin(phase, tokens)
	h.recent.Begin(tokens)
}

// Observe tells a choice, from which the online predictor learns.
func (h *history) Observe(layer int, choices []router.Choice) {
	h.online.Observe(layer, choices)
	h.recent.Observe(layer, choices)
}

// Score forecasts a layer. A layer that does not exist scores 0.
func (h *history) Score(layer int, dst []float32) {
	shape := h.model.dims.Shape
	if layer < 0 || layer >= shape.Layers || len(dst) != shape.Experts || !h.recent.Single() {
		h.online.Score(layer, dst)
		return
	}
	h.online.Features(layer, h.scratch.Columns())
	h.model.LogOdds(layer, h.recent.View(layer), h.scratch, dst)
	for e, z := range dst {
		dst[e] = sigmoid(z)
	}
}
