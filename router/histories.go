package router

import "outrider/trace"

// Histories replays a trace token by token through a predictor: it holds the
// history of each sequence from its first token to its last. Not safe for
// concurrent use.
type Histories struct {
	predictor Predictor
	trace     *trace.Trace
	last      map[int64]int // by sequence, its last token
	open      map[int64]History
	token     [1]int32
	choice    [1]Choice
}

// NewHistories starts a replay of the trace's first limit tokens.
func NewHistories(p Predictor, t *trace.Trace, limit int) *Histories {
	h := &Histories{predictor: p, trace: t, last: map[int64]int{}, open: map[int64]History{}}
	for i := range min(limit, t.Len()) {
		h.last[t.Seqs[i]] = i
	}
	return h
}

// Begin starts a decode pass of token i alone, whatever its phase was, and
// returns the history of its sequence. With its id unless that is unknown.
func (h *Histories) Begin(i int) History {
	seq := h.trace.Seqs[i]
	history := h.open[seq]
	if history == nil {
		history = h.predictor.NewHistory()
		h.open[seq] = history
	}
	if h.last[seq] == i {
		delete(h.open, seq)
	}
	var tokens []int32
	if h.token[0] = h.trace.Tokens[i]; h.token[0] >= 0 {
		tokens = h.token[:]
	}
	history.Begin(trace.Decode, tokens)
	return history
}

// Choice is what token i chose in a layer, valid until the next call.
func (h *Histories) Choice(i, layer int) []Choice {
	experts, weights := h.trace.Row(i, layer)
	h.choice[0] = Choice{Experts: experts, Weights: weights}
	return h.choice[:]
}
