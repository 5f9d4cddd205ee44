package runtime

import (
	"math"

	"outrider/layout"
	"outrider/prefetcher"
	"outrider/router"
)

// sequence is what the forecaster keeps of one session.
type sequence struct {
	history router.History
	p       [][]float32 // the latest score of each layer
	layer   int         // that it executed latest in this pass
	last    int64       // step of that
	// stride is how many steps lie between two layers of the session, smoothed:
	// one for a session alone or in a batch, more where several take turns.
	stride float64
	wanted []prefetcher.Candidate // what it would have read ahead
}

// strideGain is the share that the latest distance has in a stride.
const strideGain = 0.25

func (f *forecaster) newSequence(step int64) *sequence {
	seq := &sequence{history: f.predictor.NewHistory(), p: make([][]float32, f.rt.shape.Layers), last: step, stride: 1}
	for l := range seq.p {
		seq.p[l] = make([]float32, f.rt.shape.Experts)
	}
	return seq
}

// arrive notes that the sequence executes a layer in a step.
func (s *sequence) arrive(layer int, step int64) {
	s.layer = layer
	if step > s.last {
		s.stride += (float64(step-s.last) - s.stride) * strideGain
	}
	s.last = step
}

// active reports whether the sequence still takes turns: an idle one, whose
// session is open, asks for nothing and keeps nothing.
func (f *forecaster) active(s *sequence) bool {
	return float64(f.now-s.last) <= 2*float64(f.rt.shape.Layers)*s.stride
}

// place tells the keeper where the sequences are.
func (f *forecaster) place() {
	f.positions = f.positions[:0]
	for _, seq := range f.sequences {
		if f.active(seq) {
			f.positions = append(f.positions, seq.layer)
		}
	}
	f.keeper.Enter(f.positions...)
}

// score forecasts a layer for one sequence and lets the forecast of all
// sequences rank what is kept of it: as that of a whole pass ahead (Set), or of
// the next execution alone (SetNext).
func (f *forecaster) score(seq *sequence, layer int, keep func(*router.Keeper, int, []float32)) {
	seq.history.Score(layer, seq.p[layer])
	combined := seq.p[layer]
	if len(f.sequences) > 1 {
		combined = f.scores
		f.combine(layer)
	}
	keep(f.keeper, layer, combined)
	f.rt.cache.Invalidate(layer)
}

// combine writes to scores the probability that any of the sequences uses an
// expert of the layer.
func (f *forecaster) combine(layer int) {
	clear(f.scores)
	for _, seq := range f.sequences {
		if f.active(seq) {
			router.Join(f.scores, seq.p[layer])
		}
	}
}

// lookAhead scores the layers that come after the event's and notes what is
// likely.
func (f *forecaster) lookAhead(seq *sequence, e *event) {
	seq.wanted = seq.wanted[:0]
	reach := f.reach(seq)
	for d := 1; d <= reach; d++ {
		layer := (e.layer + d) % f.rt.shape.Layers
		f.score(seq, layer, (*router.Keeper).SetNext)
		if f.speculate && !e.waves {
			seq.want(layer, e.step+int64(float64(d)*seq.stride))
		}
	}
}

// reach is how many layers ahead the sequence looks.
func (f *forecaster) reach(seq *sequence) int {
	layers := f.horizon
	if layers == 0 {
		steps := float64(f.rt.reads.Reach())
		layers = int(min(math.Ceil(steps/seq.stride), mostHorizon))
	}
	return min(layers, max(f.rt.shape.Layers-1, 1))
}

// least is the probability under which an expert is no candidate at all; the
// governor's threshold lies above it.
const least = 0.02

func (s *sequence) want(layer int, neededBy int64) {
	for i, p := range s.p[layer] {
		if p >= least {
			id := layout.ExpertID{Layer: int32(layer), Index: int32(i)}
			s.wanted = append(s.wanted, prefetcher.Candidate{ID: id, P: p, NeededBy: neededBy})
		}
	}
}

// speculateAll asks for what the sequences want that is not behind yet. The
// prefetcher forgets what it was asked for before, so it is told of all.
func (f *forecaster) speculateAll() {
	if !f.speculate {
		return
	}
	f.wanted = f.wanted[:0]
	for _, seq := range f.sequences {
		if !f.active(seq) {
			continue
		}
		for _, c := range seq.wanted {
			if c.NeededBy > f.now {
				f.wanted = append(f.wanted, c)
			}
		}
	}
	f.rt.reads.Speculate(f.now, f.wanted)
}
