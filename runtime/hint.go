package runtime

import (
	"sync/atomic"
)

// HintStats counts what runners told of layers to come.
type HintStats struct {
	// Told counts calls of Hint and Lookahead that were taken in, Refused those
	// that made no sense (see Session.Hint), Lost those that the forecaster was too
	// busy for. What is lost or refused costs forecast quality, never correctness.
	Told, Refused, Lost int64
}

// hintCounters are HintStats as they grow; Lost is the forecaster's.
type hintCounters struct {
	told, refused atomic.Int64
}

// Hint tells which experts one token of the pass is thought to use in a layer
// whose router has not run yet: what a runner saw that ran the router early, on
// whatever state it had. p holds for each id the probability that the token uses
// it, or the router's softmax; nil means ids alone, best first. Top-k ids are
// enough, twice as many say more.
//
// A layer that the pass has executed is hinted of for the next pass; call Step
// before hinting of a pass, or its hints may be taken for those of the last one.
// Hints that several tokens give between the same two uses join. How far hints
// are to be believed is learned for each layer and distance; bad ones are soon
// ignored. A hint of a layer further ahead than the forecast reaches makes it
// reach there.
//
// Hint never waits and keeps neither slice. It has no error, since a guess must
// not stop a runner: a layer that does not exist, no ids or more than the layer
// has experts, and a p of another length are refused and counted in
// Stats().Hints.Refused; unknown ids, repeated ones and probabilities that are
// none are left out. Where nothing is forecast, it does nothing.
func (s *Session) Hint(layer int, ids []int32, p []float32) {
	f := s.rt.forecast
	if f == nil || s.closed.Load() {
		return
	}
	if layer < 0 || layer >= s.rt.shape.Layers || len(ids) == 0 || len(ids) > s.rt.shape.Experts || (len(p) != 0 && len(p) != len(ids)) {
		s.rt.hints.refused.Add(1)
		return
	}
	e := f.take(eventHint, s)
	if e == nil {
		return
	}
	s.rt.hints.told.Add(1)
	e.layer, e.from, e.step = layer, s.behind(), s.rt.step.Load()
	e.ids = append(e.ids, ids...)
	e.weights = append(e.weights, p...)
	f.push(e)
}

// behind is the layer of the pass that was used latest, -1 before the first.
func (s *Session) behind() int {
	if s.last >= s.rt.shape.Layers {
		return -1
	}
	return s.last
}

func (rt *Runtime) hintStats() HintStats {
	return HintStats{Told: rt.hints.told.Load(), Refused: rt.hints.refused.Load(), Lost: rt.forecast.lostHints()}
}
