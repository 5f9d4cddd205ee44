package router

import "outrider/trace"

// Predictor forecasts the router. It holds what is learned from all sequences;
// what one sequence did lately is in the History it makes. A Predictor and its
// histories may be used from several goroutines, each history from one at a time.
type Predictor interface {
	// Name is the word that selects the predictor: "online".
	Name() string
	// NewHistory starts a sequence.
	NewHistory() History
}

// History is a Predictor's view of one sequence. Calls follow the forward
// passes: Begin, then Observe for each layer in execution order; Score at any
// time. No call allocates in the steady state.
type History interface {
	// Begin starts a pass. Tokens are the ids of the pass's tokens, or nil
	// where the runner does not tell; the slice is not kept.
	Begin(phase trace.Phase, tokens []int32)
	// Observe tells what the router of a layer chose for each token of the
	// pass. The choices are not kept.
	Observe(layer int, choices []Choice)
	// Score writes, for every expert of layer, the probability that it is used
	// at the layer's next execution: in this pass if the layer was not
	// observed yet, else in the next one. len(dst) is the number of experts.
	Score(layer int, dst []float32)
}

// Choice is what the router of one layer chose for one token: distinct experts
// in any order, and their gate weights where known (nil or one an expert).
type Choice struct {
	Experts []int32
	Weights []float32
}
