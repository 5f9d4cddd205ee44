package replay

import (
	"sync"

	"outrider/router"
)

// Recall is a predictor that measures how well another one foretells each layer
// but the first, by what was scored last before the layer's routing was told.
// Safe for concurrent use as predictors are.
type Recall struct {
	router.Predictor
	layers, topK int

	mu     sync.Mutex
	sum    float64
	scored int
}

// NewRecall watches a predictor of a model with so many layers and top-k.
func NewRecall(p router.Predictor, layers, topK int) *Recall {
	return &Recall{Predictor: p, layers: layers, topK: topK}
}

// AtK is the mean share of used experts among the top-k highest scores, 0 before
// anything was measured.
func (r *Recall) AtK() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.scored == 0 {
		return 0
	}
	return r.sum / float64(r.scored)
}

// NewHistory starts a sequence.
func (r *Recall) NewHistory() router.History {
	return &recallHistory{History: r.Predictor.NewHistory(), recall: r, scores: make([][]float32, r.layers)}
}

type recallHistory struct {
	router.History
	recall *Recall
	scores [][]float32 // by layer, of its next execution; empty if there is none
}

// Score notes what was forecast.
func (h *recallHistory) Score(layer int, dst []float32) {
	h.History.Score(layer, dst)
	h.scores[layer] = append(h.scores[layer][:0], dst...)
}

// Observe judges it.
func (h *recallHistory) Observe(layer int, choices []router.Choice) {
	if p := h.scores[layer]; layer > 0 && len(p) > 0 {
		r := h.recall
		r.mu.Lock()
		for _, c := range choices {
			r.sum += router.Found(p, c.Experts, r.topK)
			r.scored++
		}
		r.mu.Unlock()
	}
	h.History.Observe(layer, choices)
}

// Outlook is the predictor's, where it has one.
func (h *recallHistory) Outlook(layer int, next, dst []float32) bool {
	far, ok := h.History.(router.Outlooker)
	return ok && far.Outlook(layer, next, dst)
}
