package router

import "outrider/trace"

// onlineHistory is one sequence as the online predictor sees it.
type onlineHistory struct {
	online  *Online
	phase   int
	pass    int64   // counts Begin
	tokens  []int32 // of this pass, at most maxPassTokens
	opening int32   // digest of layer 0's choice in this pass, -1 until known
	layers  []track
	scratch scratch
}

// maxPassTokens is how many tokens of a prefill pass the forecast looks at.
const maxPassTokens = 64

// maxSources is how many experts of one layer may foretell others: the most
// used ones of a prefill pass. It bounds the time of a pass with many tokens.
const maxSources = 32

// track is what one sequence did in one layer.
type track struct {
	pass   int64     // in which the layer was last observed, 0 for never
	set    []int32   // what that pass used, at most maxSources
	last   []int32   // what its last token used
	gates  []float32 // by expert, gate weight times top-k in that pass; all 0 where not known
	gated  bool      // gates are known
	digest int32     // of set
	fast   [len(timeScales)][]float32
	count  []float32 // tokens of the sequence that used the expert
	seen   float32   // tokens of the sequence
}

// scratch is memory that is reused from call to call.
type scratch struct {
	columns []float32 // nearColumns × experts
	score   []float32
	miss    []float32
	used    []float32 // 1 or 0
	absent  []float32 // probability that no token of the pass uses the expert
	prior   []float32 // how often tokens use the expert
	tally   []int32   // tokens of the pass that used the expert
	union   []int32
	long    longRun
	sources sources
}

// NewHistory starts a sequence. Its memory is about eight float32 an expert of
// the model.
func (o *Online) NewHistory() History {
	n := o.shape.Experts
	h := &onlineHistory{
		online:  o,
		opening: -1,
		tokens:  make([]int32, 0, maxPassTokens),
		layers:  make([]track, o.shape.Layers),
		scratch: scratch{
			columns: make([]float32, nearColumns*n),
			score:   make([]float32, n),
			miss:    make([]float32, n),
			used:    make([]float32, n),
			absent:  make([]float32, n),
			prior:   make([]float32, n),
			tally:   make([]int32, n),
			union:   make([]int32, 0, n),
			long:    longRun{p: make([]float32, n), inverse: make([]float32, n), log: make([]float32, n)},
		},
	}
	for l := range h.layers {
		t := &h.layers[l]
		t.set = make([]int32, 0, min(maxSources, n))
		t.last = make([]int32, 0, o.shape.TopK)
		t.gates = make([]float32, n)
		t.count = make([]float32, n)
		for i := range t.fast {
			t.fast[i] = make([]float32, n)
		}
	}
	return h
}

// Begin starts a pass. Of a pass with many tokens only the last maxPassTokens
// are looked at.
func (h *onlineHistory) Begin(phase trace.Phase, tokens []int32) {
	h.phase = phaseDecode
	if phase == trace.Prefill {
		h.phase = phasePrefill
	}
	h.pass++
	h.opening = -1
	h.tokens = append(h.tokens[:0], tokens[max(0, len(tokens)-maxPassTokens):]...)
}

// Score forecasts a layer. A layer that does not exist scores 0.
func (h *onlineHistory) Score(layer int, dst []float32) {
	if layer < 0 || layer >= len(h.layers) || len(dst) != h.online.shape.Experts {
		clear(dst)
		return
	}
	l := &h.online.layers[layer]
	l.mu.Lock()
	defer l.mu.Unlock()
	common, state := h.online.stateLocked(layer, h.phase)
	h.keepFeatures(layer, common, state)
	head := headKeep
	if h.layers[layer].pass != h.pass {
		head = h.headFor(layer, common)
		h.passFeatures(layer, head, common, state)
	}
	state.heads[head].score(h.scratch.columns, &h.scratch.sources, dst)
}

// Observe learns from what the forecast would have been, then counts the
// choice. Ids that the model does not have are left out.
func (h *onlineHistory) Observe(layer int, choices []Choice) {
	if layer < 0 || layer >= len(h.layers) || !h.gather(choices) {
		return
	}
	l := &h.online.layers[layer]
	l.mu.Lock()
	defer l.mu.Unlock()
	common, state := h.online.stateLocked(layer, h.phase)
	h.keepFeatures(layer, common, state)
	nearest := h.headFor(layer, common)
	h.passFeatures(layer, nearest, common, state)
	h.train(layer, nearest, common, state)
	h.countShared(layer, choices, common, state)
	h.countOwn(layer, choices, common)
}

// gather makes the union of the choices; it reports false if that is empty.
func (h *onlineHistory) gather(choices []Choice) bool {
	s := &h.scratch
	clear(s.tally)
	s.union = s.union[:0]
	for _, c := range choices {
		for _, e := range c.Experts {
			if !h.known(e) {
				continue
			}
			if s.tally[e] == 0 {
				s.union = append(s.union, e)
			}
			s.tally[e]++
		}
	}
	clear(s.used)
	for _, e := range s.union {
		s.used[e] = 1
	}
	return len(s.union) > 0
}

func (h *onlineHistory) known(e int32) bool { return uint(e) < uint(h.online.shape.Experts) }

// observed reports whether this pass has observed the layer.
func (h *onlineHistory) observed(layer int) bool {
	return layer >= 0 && h.layers[layer].pass == h.pass
}

// headFor is the head that looks ahead least, of those that can.
func (h *onlineHistory) headFor(layer int, common *commonState) int {
	switch {
	case h.observed(layer - 1):
		return headNear
	case h.observed(layer - 2):
		return headSkip
	case h.opening >= 0 || (common.tokens != nil && len(h.tokens) > 0):
		return headFar
	}
	return headKeep
}

// train takes one step of every head that could have forecast this layer.
func (h *onlineHistory) train(layer, nearest int, common *commonState, state *phaseState) {
	s := &h.scratch
	for i := range nearest + 1 {
		switch {
		case i == headFar && h.opening < 0 && (common.tokens == nil || len(h.tokens) == 0):
			continue
		case i == headSkip && !h.observed(layer-2):
			continue
		}
		head := &state.heads[i]
		head.score(s.columns, &s.sources, s.score)
		for e, p := range s.score {
			s.miss[e] = p - s.used[e]
		}
		head.learn(s.columns, &s.sources, s.miss)
	}
}
