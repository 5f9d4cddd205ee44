package router

import "outrider/trace"

// onlineHistory is one sequence as the online predictor sees it.
type onlineHistory struct {
	online  *Online
	phase   int
	pass    int64   // counts Begin
	tokens  []int32 // of this pass, at most maxPassTokens
	before  int32   // token of the pass before, -1 where not known
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

	setting   setting         // of the next pass: how the last one went
	recalled  [phaseCount]int // where each phase's precedents have that pass, 0 for nowhere
	foresight foresight
}

// scratch is memory that is reused from call to call.
type scratch struct {
	columns []float32 // nearColumns × experts
	score   []float32
	odds    []float32 // log odds that the filled columns' head made of them
	keep    []float32 // log odds of the head that looks a whole pass ahead
	now     []float32
	outlook []float32 // outlookColumns × experts
	miss    []float32
	used    []float32 // 1 or 0
	absent  []float32 // probability that no token of the pass uses the expert
	prior   []float32 // how often tokens use the expert
	tally   []int32   // tokens of the pass that used the expert
	union   []int32
	sources sources
	filled  filling
}

// filling says what columns and odds hold, so that learning from a choice need not
// fill again what forecasting it did.
type filling struct {
	layer, head int
	phase       int
	pass        int64
	version     int // of the phase's state
	ok          bool
}

// NewHistory starts a sequence. Its memory is about 23 float32 an expert of
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
			odds:    make([]float32, n),
			keep:    make([]float32, n),
			now:     make([]float32, n),
			outlook: make([]float32, outlookColumns*n),
			miss:    make([]float32, n),
			used:    make([]float32, n),
			absent:  make([]float32, n),
			prior:   make([]float32, n),
			tally:   make([]int32, n),
			union:   make([]int32, 0, n),
		},
	}
	for l := range h.layers {
		t := &h.layers[l]
		t.set = make([]int32, 0, min(maxSources, n))
		t.last = make([]int32, 0, o.shape.TopK)
		t.gates = make([]float32, n)
		t.count = make([]float32, n)
		t.setting.token = -1
		t.foresight = newForesight(n)
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
	h.opening, h.before = -1, -1
	if len(h.tokens) > 0 {
		h.before = h.tokens[len(h.tokens)-1]
	}
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
	head := headKeep
	if !h.observed(layer) {
		head = h.headFor(layer, common)
	}
	h.forecast(layer, head, common, state)
	for e, z := range h.scratch.odds {
		dst[e] = sigmoid(z)
	}
	if head == headKeep || !h.layers[layer].foresight.scored {
		h.scoreOutlook(layer, head, state)
	}
}

// forecast fills the columns that head needs and scores them.
func (h *onlineHistory) forecast(layer, head int, common *commonState, state *phaseState) {
	s := &h.scratch
	want := filling{layer: layer, head: head, phase: h.phase, pass: h.pass, version: state.version, ok: true}
	if s.filled == want {
		return
	}
	h.keepFeatures(layer, common, state)
	h.passFeatures(layer, head, common, state)
	state.heads[head].sum(s.columns, &s.sources, s.odds)
	s.filled = want
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
	nearest := h.headFor(layer, common)
	h.forecast(layer, nearest, common, state)
	h.train(layer, nearest, common, state)
	h.countShared(layer, choices, common, state)
	h.countOwn(layer, choices, common)
	state.version++
	h.scratch.filled.ok = false
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
	case h.knowsToken(common):
		return headFar
	}
	return headKeep
}

// knowsToken reports whether the pass's tokens are known, or what stands for them.
func (h *onlineHistory) knowsToken(common *commonState) bool {
	return h.opening >= 0 || common.tokens != nil && len(h.tokens) > 0
}

// train takes one step of every head that could have forecast this layer, and of the
// outlook.
func (h *onlineHistory) train(layer, nearest int, common *commonState, state *phaseState) {
	s := &h.scratch
	keep := s.odds
	if nearest != headKeep {
		keep = s.keep
		state.heads[headKeep].sum(s.columns, &s.sources, keep)
		h.learn(&state.heads[headKeep], keep)
	}
	for i := headFar; i < nearest; i++ {
		switch {
		case i == headFar && !h.knowsToken(common):
		case i == headSkip && !h.observed(layer-2):
		case h.due(layer, state, seldomEvery):
			state.heads[i].sum(s.columns, &s.sources, s.score)
			h.learn(&state.heads[i], s.score)
		}
	}
	h.learn(&state.heads[nearest], s.odds)
	h.trainOutlook(layer, keep, state)
}

// seldomAfter passes the heads between keep and the nearest learn at every
// seldomEvery-th only, since most forecasts are made one layer ahead, and the outlook,
// which costs as much as one, at every outlookEvery-th.
const (
	seldomAfter  = 256
	seldomEvery  = 4
	outlookEvery = 2
)

func (h *onlineHistory) due(layer int, state *phaseState, every int) bool {
	return state.version < seldomAfter || (state.version+layer)%every == 0
}

// learn takes a step of one head from its log odds.
func (h *onlineHistory) learn(head *head, odds []float32) {
	s := &h.scratch
	for e, z := range odds {
		s.miss[e] = sigmoid(z) - s.used[e]
	}
	head.learn(s.columns, &s.sources, s.miss)
}
