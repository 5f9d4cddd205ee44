package router

// seqPrior is how many tokens the long-run frequency weighs as against the
// counts of the sequence, or of a model that has seen little.
const seqPrior = 8

// column is one feature of every expert.
func (h *onlineHistory) column(k int) []float32 {
	n := h.online.shape.Experts
	return h.scratch.columns[k*n:][:n]
}

// keepFeatures fills the columns that are known a whole pass ahead.
func (h *onlineHistory) keepFeatures(layer int, common *commonState, state *phaseState) {
	s, t := &h.scratch, &h.layers[layer]
	state.takeLong(h.online.evenRate())
	one := h.column(columnOne)
	for e := range one {
		one[e] = 1
	}
	copy(h.column(columnLongRun), state.long.odds)
	sequence := h.column(columnSequence)
	scale := 1 / (t.seen + seqPrior)
	for e, c := range t.count {
		sequence[e] = logOdds((c + seqPrior*state.long.p[e]) * scale)
	}
	for i := range t.fast {
		if t.pass == 0 {
			h.frequency(common, h.column(columnFast0+i))
		} else {
			copy(h.column(columnFast0+i), t.fast[i])
		}
	}
	last := h.column(columnLast)
	clear(last)
	for _, e := range t.last {
		last[e] = 1
	}
	copy(h.column(columnGate), t.gates)
	s.sources[sourceAgain] = source{experts: t.last, gates: t.knownGates()}
	s.sources[sourceSkip], s.sources[sourceNear] = source{}, source{}
	state.follow[sourceAgain].evidence(&s.sources[sourceAgain], &state.long, h.column(columnAgainRatio))
	state.again.evidence(&t.setting, h.online.shape.TopK, &state.long, h.column(columnLikeRatio), h.column(columnLikeBest), h.column(columnLikeFuture))
}

// frequency writes how often tokens use each expert.
func (h *onlineHistory) frequency(common *commonState, dst []float32) {
	frequencies(dst, common.use, common.seen, h.online.evenRate())
}

// frequencies writes the uses of so many passes or tokens as rates, drawn towards an
// even one while little was seen.
func frequencies(dst, use []float32, seen, even float32) {
	scale := 1 / (seen + seqPrior)
	for e, u := range use {
		dst[e] = (u + seqPrior*even) * scale
	}
}

// evenRate is how often each expert would be used if all were used alike.
func (o *Online) evenRate() float32 { return float32(o.shape.TopK) / float32(o.shape.Experts) }

// passFeatures fills the columns that head needs beyond keepFeatures.
func (h *onlineHistory) passFeatures(layer, head int, common *commonState, state *phaseState) {
	if head == headKeep {
		return
	}
	h.tokenFeatures(common, state)
	common.grams.evidence(h.gramKey(), &state.long, h.column(columnGramRatio), h.column(columnGramBest))
	state.opening.evidence(h.opening, &state.long, h.column(columnOpeningRatio), h.column(columnOpeningBest))
	if head >= headSkip {
		h.layerFeatures(layer-2, sourceSkip, state)
	}
	if head >= headNear {
		h.layerFeatures(layer-1, sourceNear, state)
		state.pair.evidence(h.pairKey(layer), &state.long, h.column(columnPairRatio), h.column(columnPairBest))
		setting := h.passSetting(layer)
		state.passes.evidence(&setting, h.online.shape.TopK, &state.long, h.column(columnPassRatio), h.column(columnPassBest), nil)
	}
}

// layerFeatures fills the evidence of what an earlier layer used in this pass.
func (h *onlineHistory) layerFeatures(from, kind int, state *phaseState) {
	s := &h.scratch
	if h.observed(from) {
		t := &h.layers[from]
		s.sources[kind] = source{experts: t.set, gates: t.knownGates()}
	}
	ratio := columnNearRatio
	if kind == sourceSkip {
		ratio = columnSkipRatio
	}
	state.follow[kind].evidence(&s.sources[kind], &state.long, h.column(ratio))
}

// knownGates is by expert, nil where the runner told no weights.
func (t *track) knownGates() []float32 {
	if !t.gated {
		return nil
	}
	return t.gates
}

// tokenFeatures fills the evidence of the pass's token ids. Several tokens are
// joined as if they chose independently: an expert is used unless all leave it.
func (h *onlineHistory) tokenFeatures(common *commonState, state *phaseState) {
	s := &h.scratch
	ratio, best := h.column(columnTokenRatio), h.column(columnTokenBest)
	if len(h.tokens) <= 1 {
		common.tokens.evidence(h.toldToken(), &state.long, ratio, best)
		return
	}
	if common.tokens == nil {
		clear(ratio)
		clear(best)
		return
	}
	for e := range s.absent {
		s.absent[e] = 1
	}
	h.frequency(common, s.prior)
	for _, token := range h.tokens {
		common.tokens.leaves(token, s.prior, s.absent)
	}
	for e, a := range s.absent {
		best[e] = 1 - a
		ratio[e] = fastLog(max(1-a, 1e-4) * state.long.inverse[e])
	}
}
