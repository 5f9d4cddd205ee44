// Package router forecasts which experts a model's routers will choose.
//
// One number drives both what to bring and what to drop: p(layer, expert), the
// probability of use at the layer's next execution. A Predictor learns from all
// sequences, a History follows one of them; Keeper turns the forecast into the
// order of eviction, Evaluate measures it on a trace.
//
//	what the router chose ──► History.Observe ──► learned state (Predictor)
//	                                                    │
//	            reads ahead ◄── p ◄── History.Score ◄───┘
//	       order of eviction ◄── Keeper ◄── p
//
// An Order ranks without a forecast, by what was chosen alone: LRU, LFU,
// LeastStale, and the bound Optimum. Oracle and NewRevealed read the future from a
// trace: bounds as well.
//
// # Words
//
//	pass       one forward pass: one decoded token, or one chunk of a prompt
//	source     an expert whose use foretells another's
//	evidence   what sources, a token or past passes say of an expert: a log
//	           likelihood ratio against how often it is used at all
//	precedent  a past pass that went much like this one
//	outlook    how much later than the layer's next execution an expert is used
//	head       one logistic regression; there is one for each distance that a
//	           forecast looks ahead
//	tie        a learned weight from one source to one expert
//
// # Online
//
// Online is the default. A layer is forecast by the head that looks ahead least:
//
//	near  the layer before was observed in this pass
//	skip  the layer two before was
//	far   the token or the first layer of the pass is known
//	keep  nothing of the pass is known: the next pass
//
// Each head sees the features of those below it in this list and adds its own.
// keep: decayed use at four time scales, log odds over all sequences and in this
// one, use and gate weight at the last token, evidence of what the last token used
// in the same layer, and of the precedents of the last pass: what came after them,
// and after that. far: evidence of the token ids, of the token with the one before
// it, and of the first layer's choice as a whole, which stands in for the token
// where the runner does not tell it. skip, near: evidence of each expert that the
// layer two before, or before, chose; near also of the two strongest of those
// together, and of the precedents of this pass so far. Keep, skip and near also
// learn ties.
//
// On Observe every head that could have forecast the layer takes a step on the
// difference between its score and the choice; only then is the choice counted. The
// heads between keep and the nearest do so at every fourth pass once they know much.
// State is held in flat slices, by phase: in prefill the target is what any token
// of the pass uses.
//
// What is kept is ranked by the outlook (Outlooker), learned by temporal differences:
// it says what lies behind the next execution, for which the forecast stands.
//
// # Saved state
//
// Save writes what a predictor learned, Load reads it. Histories are not saved: they
// end with their sequence.
//
// # Hints
//
// Who knows the hidden state can tell more: a Hinter takes what was seen of a
// layer's next execution before its router ran. NewHinted makes any predictor take
// hints: it learns, for each layer and distance, how to join what they say with
// the forecast from history, and forgets them where they are worth nothing. A
// Guesser makes hints from a hidden state and the routers of later layers.
//
// # Ownership and locks
//
// Slices that callers hand in are not kept. A Predictor may be used from any
// goroutine, a History from one at a time. Online, Transition and
// HistoryTransition have one mutex a layer, Frequency, Matrix and Oracle one in
// all; no method holds two. An Order is told by one goroutine at a time, and asked
// by any.
package router
