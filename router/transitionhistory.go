package router

import (
	"fmt"

	"outrider/layout"
	"outrider/trace"
)

// HistoryTransitionOptions tune a HistoryTransition. The zero value is the default.
type HistoryTransitionOptions struct {
	// Tokens is how many tokens of all sequences are remembered; 0 means 4095,
	// which is the most.
	Tokens int
}

const (
	// maxIndexExperts and maxIndexEntries bound the memory, so that the header of a
	// damaged trace cannot ask for all there is: some 200 MiB. No model known needs a
	// tenth of it.
	maxIndexExperts = 1 << 17
	maxIndexEntries = 1 << 25
)

// HistoryTransition forecasts as Transition does, from what was chosen in the
// layer before or by the last token, but from the last tokens themselves instead
// of counts of pairs. A roaring bitmap for each expert holds the tokens that it
// came before; each of those votes for what it chose. A token that shares one
// expert with the choice at hand weighs one over the number of tokens which do, and
// four times more for each further one that it shares. Where 64 tokens share two
// experts or more, those that share one do not vote, and so on: so if there are
// enough tokens that made nearly the same choice, these decide. Elsewhere it is
// about the mean of P(expert | source) that Transition forecasts.
//
// Prefill and decode share the tokens; the probability is that any token of a pass
// uses the expert, if each is like those that share the pass's choice. Of a pass
// with many tokens the last 64 are remembered.
//
// For each layer seen it takes about 6 bytes × Tokens × top-k and 300 × experts: 12 MB
// for 48 layers of 128 experts, top 8. A history takes 16 bytes × Tokens. Score
// looks at each token as often as it shares a source, and at what each one that
// votes chose. All histories share one mutex a layer.
type HistoryTransition struct {
	shape  layout.Shape
	tokens int
	layers []tokenIndex
}

var _ Predictor = (*HistoryTransition)(nil)

// NewHistoryTransition makes a predictor that has seen nothing. It fails on a
// shape that is not valid, with ErrOption on an option out of range, and with
// ErrShape on a shape that is too large.
func NewHistoryTransition(shape layout.Shape, o HistoryTransitionOptions) (*HistoryTransition, error) {
	if err := shape.Validate(); err != nil {
		return nil, fmt.Errorf("router: transition-history: %w", err)
	}
	if o.Tokens == 0 {
		o.Tokens = maxIndexTokens
	}
	switch {
	case o.Tokens < 0 || o.Tokens > maxIndexTokens:
		return nil, fmt.Errorf("router: transition-history: %w: Tokens is %d, want 1 to %d, or 0 for that", ErrOption, o.Tokens, maxIndexTokens)
	case shape.Experts >= noExpert || shape.Count() > maxIndexExperts || shape.Layers*o.Tokens*shape.TopK > maxIndexEntries:
		return nil, fmt.Errorf("router: transition-history: %w: %d tokens of %d layers × %d experts, top %d, are too many; lower Tokens, or use recency or frequency",
			ErrShape, o.Tokens, shape.Layers, shape.Experts, shape.TopK)
	}
	return &HistoryTransition{shape: shape, tokens: o.Tokens, layers: make([]tokenIndex, shape.Layers)}, nil
}

// Name is "transition-history".
func (t *HistoryTransition) Name() string { return "transition-history" }

// NewHistory starts a sequence.
func (t *HistoryTransition) NewHistory() History {
	h := &indexHistory{transition: t, layers: make([]indexTrack, t.shape.Layers), width: 1, used: newMarks(t.shape.Experts), ballot: newBallot(t.tokens)}
	for l := range h.layers {
		h.layers[l].set = make([]int32, 0, min(maxSources, t.shape.Experts))
		h.layers[l].last = make([]int32, 0, min(maxSources, t.shape.TopK))
	}
	return h
}

// indexHistory is a HistoryTransition's view of one sequence.
type indexHistory struct {
	transition *HistoryTransition
	pass       int64 // counts Begin
	width      int   // tokens of this pass, or of the last one
	layers     []indexTrack
	before     passChoices // of the layer observed last
	now        passChoices
	used       marks
	ballot     ballot
}

// indexTrack is what one sequence did in one layer.
type indexTrack struct {
	pass int64   // in which the layer was last observed, 0 for never
	set  []int32 // what that pass used, at most maxSources
	last []int32 // what its last token chose, at most maxSources
}

// Begin starts a pass.
func (h *indexHistory) Begin(phase trace.Phase, tokens []int32) {
	h.pass++
	h.before.layer = -1
	switch {
	case len(tokens) > 0:
		h.width = len(tokens)
	case phase == trace.Decode:
		h.width = 1
	}
}

// Observe remembers the tokens of one pass. Ids that the model does not have are
// left out, and so are experts of a token beyond top-k.
func (h *indexHistory) Observe(layer int, choices []Choice) {
	t := h.transition
	if layer < 0 || layer >= t.shape.Layers {
		return
	}
	h.width = max(len(choices), 1)
	y := &h.layers[layer]
	used := h.used.union(choices)
	h.now.fill(layer, choices, t.shape)
	h.enter(layer)
	y.set = append(y.set[:0], used[:min(len(used), maxSources)]...)
	if n := h.now.count(); n > 0 {
		last := h.now.token(n - 1)
		y.last = append(y.last[:0], last[:min(len(last), maxSources)]...)
	}
	y.pass = h.pass
	h.before, h.now = h.now, h.before
}

// enter adds the tokens at hand to the index of the layer.
func (h *indexHistory) enter(layer int) {
	t := h.transition
	x := &t.layers[layer]
	known := h.before.layer == layer-1 && h.before.count() == h.now.count()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.openLocked(t.shape.Experts, t.tokens*t.shape.TopK)
	last := h.layers[layer].last
	for i := range h.now.count() {
		from := foretold{indexAgain: last}
		if known {
			from[indexNear] = h.before.token(i)
		}
		last = h.now.token(i)
		x.addLocked(last, from, t.tokens, t.shape.TopK)
	}
}

// Score forecasts a layer; one that does not exist scores 0.
func (h *indexHistory) Score(layer int, dst []float32) {
	t := h.transition
	if !fits(t.shape, layer, dst) {
		clear(dst)
		return
	}
	kind, from := indexAgain, h.layers[layer].last
	if !h.observed(layer) && h.observed(layer-1) {
		kind, from = indexNear, h.layers[layer-1].set
	}
	x := &t.layers[layer]
	x.mu.Lock()
	x.openLocked(t.shape.Experts, t.tokens*t.shape.TopK)
	x.voteLocked(&h.ballot, kind, from, t.shape.TopK, dst)
	x.mu.Unlock()
	if h.width > 1 {
		anyOf(dst, h.width)
	}
}

func (h *indexHistory) observed(layer int) bool {
	return layer >= 0 && h.layers[layer].pass == h.pass && h.pass > 0
}

// passChoices is what a pass chose in one layer, token by token: of the last
// maxPassTokens, the first top-k experts that the model has.
type passChoices struct {
	layer int // -1: none
	ids   []int32
	ends  []int // of each token's ids
}

func (c *passChoices) fill(layer int, choices []Choice, shape layout.Shape) {
	c.layer, c.ids, c.ends = layer, c.ids[:0], c.ends[:0]
	for _, choice := range choices[max(0, len(choices)-maxPassTokens):] {
		start := len(c.ids)
		for _, e := range choice.Experts {
			if uint(e) < uint(shape.Experts) && len(c.ids)-start < shape.TopK {
				c.ids = append(c.ids, e)
			}
		}
		c.ends = append(c.ends, len(c.ids))
	}
}

func (c *passChoices) count() int { return len(c.ends) }

func (c *passChoices) token(i int) []int32 {
	start := 0
	if i > 0 {
		start = c.ends[i-1]
	}
	return c.ids[start:c.ends[i]]
}
