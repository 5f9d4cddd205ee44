package router

// toldToken is the id of the pass's only token; negative where it has several or the
// runner does not tell it.
func (h *onlineHistory) toldToken() int32 {
	if len(h.tokens) != 1 {
		return -1
	}
	return h.tokens[0]
}

// gramKey joins the pass's token with the one before it; -1 where one is not
// known, or the pass has several.
func (h *onlineHistory) gramKey() int32 {
	token := h.toldToken()
	if token < 0 || h.before < 0 {
		return -1
	}
	return joinKeys(token, h.before)
}

// pairKey joins the strongest expert of the layer before with the token, or where
// that is not known with the second strongest; -1 where the pass has several
// tokens or the layer before was not observed.
func (h *onlineHistory) pairKey(layer int) int32 {
	if !h.observed(layer-1) || len(h.tokens) > 1 {
		return -1
	}
	t := &h.layers[layer-1]
	first, second := t.strongest()
	if token := h.toldToken(); token >= 0 {
		return joinKeys(token, first)
	}
	return joinKeys(first, second)
}

// token stands for the pass's only token: its id, or where the runner does not tell
// it the digest of the first layer's choice, which follows from it mostly; -1 where
// the pass has several or neither is known.
func (h *onlineHistory) token() int32 {
	if len(h.tokens) == 0 {
		return h.opening
	}
	return h.toldToken()
}

// passSetting is how this pass has gone up to a layer: what the layer before chose,
// what the one before that did, and what this layer chose for the last token.
func (h *onlineHistory) passSetting(layer int) setting {
	s := setting{token: h.token()}
	s.sets[roleFirst] = h.layers[layer-1].set
	if h.observed(layer - 2) {
		s.sets[roleSecond] = h.layers[layer-2].set
	}
	s.sets[roleThird] = h.layers[layer].last
	return s
}

// strongest are the two experts with the largest gate weights for the last token,
// or the first two where weights are not known; 0 stands for one that there is not.
func (t *track) strongest() (first, second int32) {
	var most, next float32 = -1, -1
	for i, e := range t.last {
		w := -float32(i) / float32(len(t.last)) // in order
		if t.gated {
			w = t.gates[e]
		}
		switch {
		case w > most:
			second, next = first, most
			first, most = e, w
		case w > next:
			second, next = e, w
		}
	}
	return first, second
}

// joinKeys makes one key of two, in order: 0 or more.
func joinKeys(a, b int32) int32 {
	return int32(mix(uint32(a)*0x9E3779B1+uint32(b)) >> 1)
}
