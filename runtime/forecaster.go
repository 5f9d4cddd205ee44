package runtime

import (
	"context"
	"sync"

	"outrider/prefetcher"
	"outrider/router"
	"outrider/trace"
)

// backlog is how many events may wait for the forecaster. A runner that is
// faster than that loses observations, never time. Hints take at most half of it:
// what was chosen teaches more than what was thought.
const (
	backlog     = 64
	hintBacklog = backlog / 2
)

type eventKind uint8

const (
	eventBegin eventKind = iota
	eventObserve
	eventHint
	eventLookahead
	eventRollback
	eventEnd
)

// event is one thing that a runner told, copied so that nothing of the
// caller's is kept. The slices are reused.
type event struct {
	kind    eventKind
	session int64
	phase   trace.Phase
	layer   int
	from    int   // of a hint: the layer used latest
	step    int64 // layers executed since the runtime opened
	waves   bool  // the pass needs more than fits: no room for guesses
	tokens  []int32
	ids     []int32
	weights []float32       // of a hint its probabilities, of a look-ahead the hidden state
	choices []router.Choice // into ids and weights
}

// forecaster learns from the router's choices and turns its forecast into keep
// values and speculative reads, on a goroutine of its own, so that the runner
// pays for none of it.
type forecaster struct {
	rt        *Runtime
	name      string           // of the predictor
	predictor router.Predictor // which takes hints
	look      *lookahead
	speculate bool
	horizon   int // 0: by measurement

	// Of the forecaster's goroutine alone.
	all       *router.Sequences
	sequences map[int64]*following
	wanted    []prefetcher.Candidate

	done chan struct{}
	wake chan struct{}

	mu      sync.Mutex
	queue   []*event
	spare   []*event
	dropped int64
	hints   int64 // hints dropped
}

// following is one session's sequence.
type following struct {
	*router.Sequence
	waves bool // the pass needs more than fits
}

func newForecaster(rt *Runtime, predictor router.Predictor, keeper *router.Keeper, o Options) *forecaster {
	if _, takesHints := predictor.(*router.Hinted); !takesHints {
		predictor = router.NewHinted(predictor, rt.shape)
	}
	return &forecaster{
		rt: rt, name: predictor.Name(), predictor: predictor, look: newLookahead(rt.source, o),
		speculate: !o.NoSpeculation, horizon: o.Horizon,
		all:       router.NewSequences(rt.shape, predictor, keeper, rt.cache.Invalidate),
		sequences: make(map[int64]*following),
		done:      make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

// begin, observe and end are called by runners; on a nil forecaster (nothing is
// forecast) they do nothing.
func (f *forecaster) begin(s *Session, phase trace.Phase, tokens []int32) {
	if f == nil {
		return
	}
	if e := f.take(eventBegin, s); e != nil {
		e.phase, e.waves = phase, false
		e.step = f.rt.step.Load()
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
// The end of a session is never dropped: it frees the session's history. Nor is
// a rollback, see there.
func (f *forecaster) take(kind eventKind, s *Session) *event {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case kind == eventHint || kind == eventLookahead:
		if len(f.queue) >= hintBacklog {
			f.hints++
			return nil
		}
	case len(f.queue) >= backlog && kind != eventEnd && kind != eventRollback:
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
			f.handle(e, batch[i+1:])
		}
		f.speculateAll()
		for _, e := range batch {
			e.tokens, e.ids, e.weights, e.choices = e.tokens[:0], e.ids[:0], e.weights[:0], e.choices[:0]
		}
		f.mu.Lock()
		f.spare = append(f.spare, batch...)
		f.mu.Unlock()
	}
}

// followed reports whether one of the events is of the session: then what the
// one before would ask for is behind already.
func followed(later []*event, session int64) bool {
	for _, e := range later {
		if e.session == session {
			return true
		}
	}
	return false
}

// handle learns from one event and, if it is its session's latest, looks ahead.
func (f *forecaster) handle(e *event, later []*event) {
	seq := f.sequences[e.session]
	switch {
	case e.kind == eventEnd:
		if seq != nil {
			seq.Close()
			delete(f.sequences, e.session)
		}
		return
	case seq == nil:
		seq = &following{Sequence: f.all.Open(e.step)}
		f.sequences[e.session] = seq
	}
	switch e.kind {
	case eventBegin:
		seq.Begin(e.step, e.phase, e.tokens)
		f.look.hashed.tell(f.rt, seq.Sequence, e.tokens)
		seq.waves = false
	case eventObserve:
		seq.Observe(e.step, e.layer, e.choices)
		seq.waves = e.waves
	case eventHint:
		seq.Hint(e.from, e.layer, e.ids, e.told())
	case eventLookahead:
		f.look.ahead(f, seq.Sequence, e, later)
	case eventRollback:
		seq.LookNowhere()
		return
	}
	if followed(later, e.session) {
		return
	}
	seq.LookAhead(f.reach(seq.Sequence))
	if seq.waves {
		seq.LookNowhere() // the pass needs all the room there is
	}
}

// told are a hint's probabilities, nil if it has none.
func (e *event) told() []float32 {
	if len(e.weights) == 0 {
		return nil
	}
	return e.weights
}

// reach is how many layers ahead the sequence looks.
func (f *forecaster) reach(seq *router.Sequence) int {
	if f.horizon > 0 {
		return f.horizon
	}
	return seq.Reach(float64(f.rt.reads.Reach()))
}

// speculateAll asks for what the sequences want that is not behind yet. The
// prefetcher forgets what it was asked for before, so it is told of all.
func (f *forecaster) speculateAll() {
	if !f.speculate {
		return
	}
	f.wanted = prefetcher.Candidates(f.wanted[:0], f.all)
	f.rt.reads.Speculate(f.all.Now(), f.wanted)
}

func (f *forecaster) lost() int64 {
	if f == nil {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dropped
}

func (f *forecaster) lostHints() int64 {
	if f == nil {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hints
}
