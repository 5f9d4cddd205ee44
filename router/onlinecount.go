package router

import "slices"

// countShared adds a choice to what all sequences know of the layer.
func (h *onlineHistory) countShared(layer int, choices []Choice, common *commonState, state *phaseState) {
	s := &h.scratch
	for kind := range s.sources {
		state.follow[kind].add(s.sources[kind].experts, s.union, &state.long)
	}
	h.capUnion()
	if layer > 0 {
		if h.opening >= 0 {
			state.opening.add(h.opening, s.union)
		}
		if h.observed(layer - 1) {
			h.countPass(layer, state)
		}
	}
	h.countAgain(layer, state)
	h.countTokens(choices, common)
	state.seen = state.seen*useDecay + 1
	for e, u := range s.used {
		state.use[e] = state.use[e]*useDecay + u
	}
	common.seen = common.seen*useDecay + float32(len(choices))
	for e, n := range s.tally {
		common.use[e] = common.use[e]*useDecay + float32(n)
	}
}

// countPass adds what this pass used after what it used in the layer before.
func (h *onlineHistory) countPass(layer int, state *phaseState) {
	s := &h.scratch
	if key := h.pairKey(layer); key >= 0 {
		state.pair.add(key, s.union)
	}
	setting := h.passSetting(layer)
	state.passes.add(&setting, s.union, 0)
}

// countAgain adds what this pass used after what the last one did.
func (h *onlineHistory) countAgain(layer int, state *phaseState) {
	t := &h.layers[layer]
	if t.pass > 0 {
		t.recalled[h.phase] = state.again.add(&t.setting, h.scratch.union, t.recalled[h.phase])
	}
}

// countTokens adds what each token of the pass chose to the token table, where
// the runner told the tokens of the choices.
func (h *onlineHistory) countTokens(choices []Choice, common *commonState) {
	choices = choices[max(0, len(choices)-maxPassTokens):]
	if len(h.tokens) == 0 || len(h.tokens) != len(choices) {
		return
	}
	if common.tokens == nil {
		common.tokens = newTokenTable(h.online.opts.TokenSlots, h.online.opts.TokenWidth)
		common.grams = newTokenTable(h.online.opts.TokenSlots, h.online.opts.TokenWidth)
	}
	if key := h.gramKey(); key >= 0 {
		common.grams.add(key, h.scratch.union)
	}
	for i, c := range choices {
		if h.tokens[i] >= 0 && h.allKnown(c.Experts) {
			common.tokens.add(h.tokens[i], c.Experts)
		}
	}
}

func (h *onlineHistory) allKnown(experts []int32) bool {
	for _, e := range experts {
		if !h.known(e) {
			return false
		}
	}
	return true
}

// capUnion keeps the most used experts of the union.
func (h *onlineHistory) capUnion() {
	s := &h.scratch
	if len(s.union) <= maxSources {
		return
	}
	slices.SortFunc(s.union, func(a, b int32) int { return int(s.tally[b]) - int(s.tally[a]) })
	s.union = s.union[:maxSources]
}

// countOwn adds a choice to the sequence's own track of the layer.
func (h *onlineHistory) countOwn(layer int, choices []Choice, common *commonState) {
	s, t := &h.scratch, &h.layers[layer]
	for i, scale := range timeScales {
		fast := t.fast[i]
		if t.pass == 0 {
			h.frequency(common, fast)
		}
		h.decay(fast, 1-1/scale, choices)
	}
	t.seen += float32(len(choices))
	for e, n := range s.tally {
		t.count[e] += float32(n)
	}
	h.countGates(t, choices)
	t.set = append(t.set[:0], s.union...)
	before := &t.setting.sets[roleThird]
	*before = append((*before)[:0], t.last...)
	t.last = t.last[:0]
	for _, e := range choices[len(choices)-1].Experts {
		if h.known(e) && len(t.last) < maxSources {
			t.last = append(t.last, e)
		}
	}
	h.remember(layer)
	t.digest = digest(t.set)
	t.pass = h.pass
	if layer == 0 {
		h.opening = t.digest
	}
}

// remember makes the setting of the layer's next pass: what its last token used, what
// that used in the layer before, and what the token before it used here.
func (h *onlineHistory) remember(layer int) {
	t := &h.layers[layer]
	before := &h.layers[(layer+len(h.layers)-1)%len(h.layers)]
	sets := &t.setting.sets
	sets[roleFirst] = append(sets[roleFirst][:0], t.last...)
	sets[roleSecond] = append(sets[roleSecond][:0], before.last...)
	t.setting.token = h.token()
}

// decay moves a decayed use on by the tokens of a pass.
func (h *onlineHistory) decay(fast []float32, keep float32, choices []Choice) {
	share := 1 - keep
	all := float32(1)
	for range choices {
		all *= keep
	}
	for e := range fast {
		fast[e] *= all
	}
	for i := len(choices) - 1; i >= 0; i-- {
		for _, e := range choices[i].Experts {
			if h.known(e) {
				fast[e] += share
			}
		}
		share *= keep
	}
}

// countGates notes the mean gate weight of each expert over the pass's tokens
// that used it. The weights of a token are scaled to sum top-k, since models
// differ in how they scale theirs.
func (h *onlineHistory) countGates(t *track, choices []Choice) {
	clear(t.gates)
	t.gated = false
	for _, c := range choices {
		scale := h.gateScale(c)
		if scale == 0 {
			clear(t.gates)
			return
		}
		for i, e := range c.Experts {
			if h.known(e) {
				t.gates[e] += c.Weights[i] * scale / float32(h.scratch.tally[e])
			}
		}
	}
	t.gated = true
}

// gateScale makes a token's gate weights sum top-k; 0 where they are not known
// or not usable.
func (h *onlineHistory) gateScale(c Choice) float32 {
	if len(c.Weights) != len(c.Experts) {
		return 0
	}
	var sum float32
	for _, w := range c.Weights {
		if !(w >= 0) {
			return 0
		}
		sum += w
	}
	if !(sum > 1e-20 && sum < 1e20) {
		return 0
	}
	return float32(h.online.shape.TopK) / sum
}

// digest names a set of experts, whatever their order: 0 or more.
func digest(experts []int32) int32 {
	var sum uint32
	for _, e := range experts {
		sum += mix(uint32(e) + 12345)
	}
	return int32(sum >> 1)
}
