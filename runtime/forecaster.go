package runtime

import (
	"context"
	"sync"

	"outrider/layout"
	"outrider/prefetcher"
	"outrider/router"
	"outrider/trace"
)

// backlog is how many events may wait for the forecaster. A runner that is
// faster than that loses observations, never time.
const backlog = 64

type eventKind uint8

const (
	eventBegin eventKind = iota
	eventObserve
	eventEnd
)

// event is one thing that a runner told, copied so that nothing of the
// caller's is kept. The slices are reused.
type event struct {
	kind    eventKind
	session int64
	phase   trace.Phase
	layer   int
	step    int64 // layers executed since the runtime opened
	waves   bool  // the pass needs more than fits: no room for guesses
	tokens  []int32
	ids     []int32
	weights []float32
	choices []router.Choice // into ids and weights
}

// forecaster learns from the router's choices and turns its forecast into keep
// values and speculative reads, on a goroutine of its own, so that the runner
// pays for none of it.
type forecaster struct {
	rt        *Runtime
	predictor router.Predictor
	keeper    *router.Keeper
	speculate bool
	horizon   int

	// Of the forecaster's goroutine alone.
	sequences map[int64]*sequence
	scores    []float32
	wanted    []prefetcher.Candidate

	done chan struct{}
	wake chan struct{}

	mu      sync.Mutex
	queue   []*event
	spare   []*event
	dropped int64
}

// sequence is what the forecaster keeps of one session.
type sequence struct {
	history router.History
	p       [][]float32 // the latest score of each layer
}

func newForecaster(rt *Runtime, predictor router.Predictor, keeper *router.Keeper, o Options) *forecaster {
	return &forecaster{
		rt: rt, predictor: predictor, keeper: keeper,
		speculate: !o.NoSpeculation, horizon: min(o.Horizon, rt.shape.Layers-1),
		sequences: make(map[int64]*sequence),
		scores:    make([]float32, rt.shape.Experts),
		done:      make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

// begin, observe and end are called by runners; on a nil forecaster (KeepLRU)
// they do nothing.
func (f *forecaster) begin(s *Session, phase trace.Phase, tokens []int32) {
	if f == nil {
		return
	}
	if e := f.take(eventBegin, s); e != nil {
		e.phase, e.layer, e.waves = phase, 0, false
		e.step = f.rt.step.Load() + 1 // when layer 0 will run
		e.tokens = append(e.tokens, tokens...)
		f.push(e)
	}
}

func (f *forecaster) end(s *Session) {
	if f == nil {
		return
	}
	if e := f.take(eventEnd, s); e != nil {
		f.push(e)
	}
}

func (f *forecaster) observe(part Routed, layer int, step int64, waves bool) {
	if f == nil || part.Session == nil {
		return
	}
	if e := f.take(eventObserve, part.Session); e != nil {
		e.layer, e.step, e.waves = layer, step, waves
		e.copyChoices(part.Choices)
		f.push(e)
	}
}

// copyChoices flattens the choices into the event's own memory.
func (e *event) copyChoices(choices []router.Choice) {
	for _, c := range choices {
		e.ids = append(e.ids, c.Experts...)
		e.weights = append(e.weights, c.Weights...)
	}
	ids, weights := e.ids, e.weights
	for _, c := range choices {
		own := router.Choice{Experts: ids[:len(c.Experts):len(c.Experts)]}
		if len(c.Weights) > 0 {
			own.Weights = weights[:len(c.Weights):len(c.Weights)]
		}
		ids, weights = ids[len(c.Experts):], weights[len(c.Weights):]
		e.choices = append(e.choices, own)
	}
}

// take finds an event to fill, or nil when the forecaster is too far behind.
// The end of a session is never dropped: it frees the session's history.
func (f *forecaster) take(kind eventKind, s *Session) *event {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) >= backlog && kind != eventEnd {
		f.dropped++
		return nil
	}
	var e *event
	if n := len(f.spare); n > 0 {
		e, f.spare = f.spare[n-1], f.spare[:n-1]
	} else {
		e = new(event)
	}
	e.kind, e.session = kind, s.number
	return e
}

func (f *forecaster) push(e *event) {
	f.mu.Lock()
	f.queue = append(f.queue, e)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// run handles events until the context ends.
func (f *forecaster) run(ctx context.Context) {
	defer close(f.done)
	var batch []*event
	for {
		f.mu.Lock()
		batch, f.queue = f.queue, batch[:0]
		f.mu.Unlock()
		if len(batch) == 0 {
			select {
			case <-f.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		for i, e := range batch {
			f.handle(e, i == len(batch)-1)
			e.tokens, e.ids, e.weights, e.choices = e.tokens[:0], e.ids[:0], e.weights[:0], e.choices[:0]
		}
		f.mu.Lock()
		f.spare = append(f.spare, batch...)
		f.mu.Unlock()
	}
}

// handle learns from one event. Only the latest of a batch leads to reads:
// what an older one would ask for is behind already.
func (f *forecaster) handle(e *event, latest bool) {
	seq := f.sequences[e.session]
	if seq == nil && e.kind != eventEnd {
		seq = f.newSequence()
		f.sequences[e.session] = seq
	}
	switch e.kind {
	case eventEnd:
		delete(f.sequences, e.session)
		return
	case eventBegin:
		seq.history.Begin(e.phase, e.tokens)
		if latest {
			f.lookAhead(seq, e, 0)
		}
	case eventObserve:
		seq.history.Observe(e.layer, e.choices)
		f.keeper.Enter(e.layer)
		f.score(seq, e.layer, (*router.Keeper).Set)
		if latest {
			f.lookAhead(seq, e, 1)
		}
	}
}

func (f *forecaster) newSequence() *sequence {
	seq := &sequence{history: f.predictor.NewHistory(), p: make([][]float32, f.rt.shape.Layers)}
	for l := range seq.p {
		seq.p[l] = make([]float32, f.rt.shape.Experts)
	}
	return seq
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
		router.Join(f.scores, seq.p[layer])
	}
}

// lookAhead scores the layers that come next, from ahead layers after the
// event's on, and asks for what is likely and not in memory.
func (f *forecaster) lookAhead(seq *sequence, e *event, ahead int) {
	f.wanted = f.wanted[:0]
	for d := ahead; d <= f.horizon; d++ {
		layer := (e.layer + d) % f.rt.shape.Layers
		f.score(seq, layer, (*router.Keeper).SetNext)
		if f.speculate && !e.waves {
			f.candidates(layer, seq.p[layer], e.step+int64(d))
		}
	}
	if f.speculate {
		f.rt.reads.Speculate(e.step, f.wanted)
	}
}

// least is the probability under which an expert is no candidate at all; the
// governor's threshold lies above it.
const least = 0.02

func (f *forecaster) candidates(layer int, p []float32, neededBy int64) {
	for i, v := range p {
		if v < least {
			continue
		}
		id := layout.ExpertID{Layer: int32(layer), Index: int32(i)}
		f.wanted = append(f.wanted, prefetcher.Candidate{ID: id, P: v, NeededBy: neededBy})
	}
}

func (f *forecaster) lost() int64 {
	if f == nil {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dropped
}
