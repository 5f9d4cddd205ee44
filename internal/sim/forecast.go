package sim

import (
	"outrider/internal/passes"
	"outrider/prefetcher"
	"outrider/router"
)

// forecast runs a predictor over the sequences of the trace.
type forecast struct {
	all      *router.Sequences
	open     map[int64]*router.Sequence
	schedule *passes.Schedule
	topK     int

	recall float64 // summed over layer executions of tokens
	scored int
}

func newForecast(e *engine, p router.Predictor, keeper *router.Keeper) *forecast {
	return &forecast{
		all:  router.NewSequences(e.shape, p, keeper, e.table.Invalidate),
		open: map[int64]*router.Sequence{}, schedule: e.schedule, topK: e.shape.TopK,
	}
}

// begin starts a sequence's pass.
func (f *forecast) begin(step int64, p passes.Part) *router.Sequence {
	q := f.open[p.Seq]
	if q == nil {
		q = f.all.Open(step)
		f.open[p.Seq] = q
	}
	phase, tokens := f.schedule.Known(p)
	q.Begin(step, phase, tokens)
	return q
}

// observe tells the choice of a part, after judging what was forecast of it.
func (f *forecast) observe(step int64, layer int, p passes.Part, choices []router.Choice) *router.Sequence {
	q := f.open[p.Seq]
	if layer > 0 {
		for _, c := range choices {
			f.recall += router.Found(q.Scores(layer), c.Experts, f.topK)
			f.scored++
		}
	}
	q.Observe(step, layer, choices)
	return q
}

func (f *forecast) end(p passes.Part) {
	f.open[p.Seq].Close()
	delete(f.open, p.Seq)
}

// lookAhead forecasts a sequence's next layers, and, if the pass leaves room for
// guesses, wants their experts.
func (e *engine) lookAhead(q *router.Sequence, guess bool) {
	layers := e.opts.Horizon
	if layers == 0 {
		layers = q.Reach(float64(e.pace.Reach()))
	}
	q.LookAhead(layers)
	if !guess {
		q.LookNowhere()
	}
}

// speculate replaces the speculative reads that were not started by those that
// the latest forecast is worth.
func (e *engine) speculate() {
	e.dropped = e.queue.ClearSpeculative(e.dropped[:0])
	if !e.policy.Speculate || e.governor.Mode() == prefetcher.SpeculationOff {
		return
	}
	all := prefetcher.Candidates(e.candidates[:0], e.forecast.all)
	e.candidates = all
	list := all[:0]
	for _, c := range all {
		if !e.table.Resident(c.ID) && !e.table.InFlight(c.ID) {
			list = append(list, c)
		}
	}
	prefetcher.Sort(list, e.shape)
	rule := prefetcher.Admission{
		Step: e.step, Threshold: e.governor.Threshold(), ReadSteps: e.pace.FreeSteps(), TopK: e.shape.TopK,
	}
	// Speculative reads under way are half done on average.
	begun := len(e.drives.flights) - e.drives.waiting
	rule.Fill(e.queue, list, begun/2, nil)
}
