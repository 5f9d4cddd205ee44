package router

import (
	"sync"

	"outrider/layout"
	"outrider/trace"
)

// Hinter is a History that takes hints: what somebody who knows the hidden state
// saw of a layer's next execution before the layer's own router ran.
type Hinter interface {
	History
	// Hint tells experts that one token of the pass is thought to use in a layer:
	// in this pass if the layer was not observed yet, else in the next one. from is
	// the layer whose state the hint was made from, -1 before the first. p holds the
	// probability that the token uses each expert, or a softmax over the experts; nil
	// means ids alone, the best first. Of what is given only the order and the odds
	// count, and how far to believe them is learned.
	//
	// Hints from one layer join: an expert is used unless no token uses it. A hint
	// from another layer replaces that of the same distance, and of several
	// distances the nearest counts. Unknown and repeated ids and probabilities that
	// are none are left out; a hint of another length than ids, or of a layer that
	// does not exist, is no hint. Slices are not kept.
	Hint(from, layer int, ids []int32, p []float32)
	// Hinted reports whether there is a hint of the layer's next execution.
	Hinted(layer int) bool
}

// Hinted makes any predictor take hints. Where a layer's next execution has a
// hint, the forecast is a learned combination of the inner forecast and of what
// the hint says: a logistic regression for each layer, phase and distance (the
// layer after the one hinted from, two after, and further). It starts by trusting
// hints, and is used only while it loses less (log loss) than the inner forecast
// alone, so that a source of bad hints costs a few tokens. Without a hint the
// scores are the inner predictor's, bit for bit.
type Hinted struct {
	inner  Predictor
	shape  layout.Shape
	layers []hintLayer
}

var (
	_ Predictor = (*Hinted)(nil)
	_ Hinter    = (*hintedHistory)(nil)
)

// hintLayer is what all sequences share of one layer.
type hintLayer struct {
	mu    sync.Mutex
	heads [hintPhases][hintDistances]hintHead
}

const (
	hintPhases    = 2 // prefill apart: there a hint joins what many tokens use
	hintDistances = 3 // one layer ahead, two, more
)

// NewHinted makes a predictor that forecasts as inner does until it is told
// hints; inner must be of the shape. A shape that is not valid takes no hints.
// What is learned takes memory as hints come: for each layer and distance that has
// some, experts × experts float32 for up to 256 experts a layer, else experts.
func NewHinted(inner Predictor, shape layout.Shape) *Hinted {
	h := &Hinted{inner: inner, shape: shape}
	if shape.Validate() != nil {
		return h
	}
	h.layers = make([]hintLayer, shape.Layers)
	for l := range h.layers {
		for phase := range h.layers[l].heads {
			for d := range h.layers[l].heads[phase] {
				h.layers[l].heads[phase][d] = newHintHead()
			}
		}
	}
	return h
}

// Name is the inner predictor's.
func (h *Hinted) Name() string { return h.inner.Name() }

// Inner is the predictor that hints are combined with.
func (h *Hinted) Inner() Predictor { return h.inner }

// NewHistory starts a sequence. Beyond the inner history it takes memory when
// the first hint of a layer comes: eighteen bytes an expert and distance.
func (h *Hinted) NewHistory() History {
	return &hintedHistory{hinted: h, inner: h.inner.NewHistory(), seen: make([]int64, len(h.layers)), hints: make([][hintDistances]*hint, len(h.layers))}
}

// hintedHistory is one sequence.
type hintedHistory struct {
	hinted *Hinted
	inner  History
	phase  int
	pass   int64   // counts Begin
	seen   []int64 // by layer, the pass that observed it latest
	told   bool    // of at least one hint: until then nothing is done
	hints  [][hintDistances]*hint
	used   []bool // scratch

	latest int    // layer observed latest
	chose  chosen // there
}

// Begin starts a pass. Hints of the last pass that were not redeemed are void.
func (h *hintedHistory) Begin(phase trace.Phase, tokens []int32) {
	h.inner.Begin(phase, tokens)
	h.pass++
	h.phase = 0
	if phase == trace.Prefill {
		h.phase = 1
	}
}

// next is the pass of the layer's next execution.
func (h *hintedHistory) next(layer int) int64 {
	if h.seen[layer] == h.pass {
		return h.pass + 1
	}
	return h.pass
}

func (h *hintedHistory) layerExists(layer int) bool { return uint(layer) < uint(len(h.seen)) }

// Hint implements Hinter.
func (h *hintedHistory) Hint(from, layer int, ids []int32, p []float32) {
	if !h.layerExists(layer) || len(ids) == 0 || (p != nil && len(p) != len(ids)) {
		return
	}
	pass := h.next(layer)
	ahead := layer - from
	if pass > h.pass {
		ahead += len(h.seen)
	}
	slot := &h.hints[layer][min(max(ahead, 1), hintDistances)-1]
	if *slot == nil {
		*slot = newHint(h.hinted.shape.Experts)
	}
	if k := *slot; k.pass != pass || k.from != from {
		k.start(pass, from)
	}
	(*slot).join(ids, p, h.hinted.shape.TopK)
	h.told = true
}

// Hinted implements Hinter.
func (h *hintedHistory) Hinted(layer int) bool {
	_, d := h.nearest(layer)
	return d >= 0
}

// nearest is the hint of the layer's next execution that comes from least far,
// and its distance; -1 if there is none.
func (h *hintedHistory) nearest(layer int) (*hint, int) {
	if !h.told || !h.layerExists(layer) {
		return nil, -1
	}
	pass := h.next(layer)
	for d, k := range h.hints[layer] {
		if k != nil && k.pass == pass && k.listed {
			return k, d
		}
	}
	return nil, -1
}

// Score forecasts a layer.
func (h *hintedHistory) Score(layer int, dst []float32) {
	h.inner.Score(layer, dst)
	k, d := h.nearest(layer)
	if d < 0 || len(dst) != len(k.inner) {
		return
	}
	h.compare(k, dst)
	l := &h.hinted.layers[layer]
	l.mu.Lock()
	defer l.mu.Unlock()
	if head := &l.heads[h.phase][d]; head.pays() {
		head.score(k, dst)
	}
}

// compare notes what is known beside a hint: the inner forecast, and what was
// chosen where the hint was made.
func (h *hintedHistory) compare(k *hint, p []float32) {
	k.compare(p)
	if h.latest == k.from && h.seen[h.latest] == h.pass {
		k.copyFrom(&h.chose)
	}
}

// Observe learns what the hints of the layer were worth, and tells the inner
// history.
func (h *hintedHistory) Observe(layer int, choices []Choice) {
	if h.layerExists(layer) {
		// A layer that runs twice in a pass leaves what is hinted of the next one.
		if k, d := h.nearest(layer); d >= 0 && k.pass == h.pass && h.gather(choices) {
			h.redeem(layer, k)
		}
		h.seen[layer], h.latest = h.pass, layer
		if h.told {
			h.chose.set(choices, h.hinted.shape.Experts)
		}
	}
	h.inner.Observe(layer, choices)
}

// gather notes which experts the choices use; false if they use none.
func (h *hintedHistory) gather(choices []Choice) (any bool) {
	if h.used == nil {
		h.used = make([]bool, h.hinted.shape.Experts)
	}
	clear(h.used)
	for _, c := range choices {
		for _, e := range c.Experts {
			if uint(e) < uint(len(h.used)) {
				h.used[e], any = true, true
			}
		}
	}
	return any
}

// redeem trains the head of each distance that had a hint, on what the inner
// forecast said while that hint was the nearest. A nearest hint that was never
// asked for is compared with what the inner forecast says now.
func (h *hintedHistory) redeem(layer int, nearest *hint) {
	if !nearest.compared {
		h.inner.Score(layer, nearest.inner)
		h.compare(nearest, nearest.inner)
	}
	l := &h.hinted.layers[layer]
	l.mu.Lock()
	defer l.mu.Unlock()
	for d, k := range h.hints[layer] {
		if k != nil && k.pass == nearest.pass && k.compared {
			l.heads[h.phase][d].learn(k, h.used)
		}
	}
}

// Outlook is the inner predictor's, where it has one.
func (h *hintedHistory) Outlook(layer int, next, dst []float32) bool {
	return outlook(h.inner, layer, next, dst)
}
