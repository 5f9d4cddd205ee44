package router

// OutlookDiscount is how much less a use counts for each pass by which it is later,
// in an Outlook. Of 0.5 to 0.95 it kept the most hits on recorded traces.
const OutlookDiscount = 0.7

// Outlooker is a History that sees beyond a layer's next execution. Its outlook
// ranks what is kept better than the probability of the next use alone: two experts
// that are equally likely next are not equally worth their room if one of them is
// used again and again.
type Outlooker interface {
	History
	// Outlook writes, for every expert of layer, OutlookDiscount to the power of
	// the passes by which its next use comes later than the layer's next execution,
	// as expected: 1 for what is used in that, near 0 for what is not used for
	// long. next is the forecast of that execution, from the latest Score. It
	// reports false, and writes nothing, where it has no outlook for the layer.
	Outlook(layer int, next, dst []float32) bool
}

// outlook asks a history that may have one.
func outlook(h History, layer int, next, dst []float32) bool {
	far, ok := h.(Outlooker)
	return ok && far.Outlook(layer, next, dst)
}

// outlookColumns are the columns of keep, and what keep makes of them.
const outlookColumns = keepColumns + 1

// startOutlook is where learning starts.
var startOutlook = func() (w [outlookColumns]float32) {
	copy(w[:], startWeights[:keepColumns])
	w[keepColumns] = 0.2
	return w
}()

// foresight is what a sequence keeps for the outlook of one layer.
type foresight struct {
	columns []float32 // outlookColumns × experts, as they were before the last pass
	used    []float32 // 1 or 0, in the last pass
	known   bool      // both hold
	behind  []float32 // the latest outlook on what is not used next
	scored  bool      // it holds
}

func newForesight(experts int) foresight {
	return foresight{
		columns: make([]float32, outlookColumns*experts), used: make([]float32, experts),
		behind: make([]float32, experts),
	}
}

// Outlook shifts the outlook that was made with keep's score to another forecast of
// the next execution: what lies behind that is the same.
func (h *onlineHistory) Outlook(layer int, next, dst []float32) bool {
	n := h.online.shape.Experts
	if layer < 0 || layer >= len(h.layers) || len(next) != n || len(dst) != n || !h.layers[layer].foresight.scored {
		return false
	}
	f := &h.layers[layer].foresight
	for e, p := range next {
		dst[e] = p + (1-p)*f.behind[e]
	}
	return true
}

// scoreOutlook makes the outlook from keep's columns and log odds, which it scores
// unless the forecast was keep's own.
func (h *onlineHistory) scoreOutlook(layer, head int, state *phaseState) {
	s, f := &h.scratch, &h.layers[layer].foresight
	odds := s.odds
	if head != headKeep {
		odds = s.keep
		state.heads[headKeep].sum(s.columns, &s.sources, odds)
	}
	h.outlookColumn(odds)
	state.outlook.score(s.outlook, nil, f.behind)
	f.scored = true
}

// outlookColumn makes the outlook's columns in scratch; odds are keep's.
func (h *onlineHistory) outlookColumn(odds []float32) {
	n := copy(h.scratch.outlook, h.scratch.columns[:keepColumns*len(odds)])
	copy(h.scratch.outlook[n:], odds)
}

// trainOutlook learns by temporal differences (Sutton 1988): the outlook of the pass
// before the last should have been 1 for what the last pass used, and for the others
// the discounted outlook of now. odds are keep's, s.used is the choice of this pass.
func (h *onlineHistory) trainOutlook(layer int, odds []float32, state *phaseState) {
	s, f := &h.scratch, &h.layers[layer].foresight
	h.outlookColumn(odds)
	if f.known && h.due(layer, state, outlookEvery) {
		state.outlook.score(s.outlook, nil, s.now)
		state.outlook.score(f.columns, nil, s.score)
		for e, x := range s.score {
			p := sigmoid(odds[e])
			s.miss[e] = (x - OutlookDiscount*(p+(1-p)*s.now[e])) * (1 - f.used[e])
		}
		state.outlook.learn(f.columns, nil, s.miss)
	}
	copy(f.columns, s.outlook)
	copy(f.used, s.used)
	f.known = true
}
