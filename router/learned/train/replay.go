package train

import (
	"context"
	"math/rand/v2"

	"outrider/layout"
	"outrider/router"
	"outrider/router/learned"
	"outrider/trace"
)

// sequence is what a forecast of one sequence is made of.
type sequence struct {
	online router.Featured
	recent *learned.Recent
}

// replay feeds tokens to an online predictor, one a pass, and takes examples.
type replay struct {
	shape   layout.Shape
	random  *rand.Rand
	online  *router.Online
	sampler sampler
	into    *examples
	tick    func() // told of each token

	last   map[int64]int // of each sequence of the part
	open   map[int64]*sequence
	due    []int // by layer: after how many layers of the pass its example is due, or notDue
	token  [1]int32
	choice [1]router.Choice
}

const (
	notDue    = -2
	beforeAll = -1 // before the pass begins
)

// farthest is how many layers ahead the runtime looks at most.
const farthest = 8

// firstLife is how many tokens the shortest life of an online predictor lasts.
const firstLife = 128

// births lists the tokens at which the online predictor starts anew: the last
// life takes half the tokens, the one before it a quarter, and so on.
func births(tokens int) []int {
	var at []int
	for n := tokens / 2; n >= firstLife; n /= 2 {
		at = append([]int{n}, at...)
	}
	return append([]int{0}, at...)
}

// run replays the parts one after the other; the predictor starts anew at the
// births, counted in tokens.
func (r *replay) run(ctx context.Context, parts []part, births []int) error {
	r.due = make([]int, r.shape.Layers)
	n := 0
	for _, p := range parts {
		r.open, r.last = map[int64]*sequence{}, map[int64]int{}
		for _, i := range p.tokens {
			r.last[p.trace.Seqs[i]] = i
		}
		for _, i := range p.tokens {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if len(births) > 0 && births[0] == n {
				births = births[1:]
				if err := r.renew(); err != nil {
					return err
				}
			}
			r.pass(p.trace, i)
			n++
			r.tick()
		}
	}
	return nil
}

// renew starts from nothing.
func (r *replay) renew() (err error) {
	clear(r.open)
	r.online, err = router.NewOnline(r.shape, router.OnlineOptions{})
	return err
}

// pass replays token i alone.
func (r *replay) pass(t *trace.Trace, i int) {
	seq := t.Seqs[i]
	q := r.open[seq]
	if q == nil {
		q = &sequence{online: r.online.NewHistory().(router.Featured), recent: learned.NewRecent(r.shape)} // those of Online are
		r.open[seq] = q
	}
	if r.last[seq] == i {
		delete(r.open, seq)
	}
	r.plan()
	r.collect(q, t, i, beforeAll)
	var tokens []int32
	if r.token[0] = t.Tokens[i]; r.token[0] >= 0 {
		tokens = r.token[:]
	}
	q.online.Begin(trace.Decode, tokens)
	q.recent.Begin(tokens)
	for l := range r.shape.Layers {
		r.collect(q, t, i, l)
		experts, weights := t.Row(i, l)
		r.choice[0] = router.Choice{Experts: experts, Weights: weights}
		q.online.Observe(l, r.choice[:])
		q.recent.Observe(l, r.choice[:])
	}
}

// plan draws of which layers of the next pass to take an example, and when: half
// of them right before the layer, a quarter some layers ahead, a quarter
// before the pass.
func (r *replay) plan() {
	for l := range r.due {
		r.due[l] = notDue
		if !r.sampler.take() {
			continue
		}
		switch r.random.IntN(4) {
		case 0:
			r.due[l] = beforeAll
		case 1:
			r.due[l] = max(l-1-r.random.IntN(farthest-1), 0)
		default:
			r.due[l] = l
		}
	}
}

// collect takes the examples that are due now.
func (r *replay) collect(q *sequence, t *trace.Trace, i, now int) {
	for l, due := range r.due {
		if due == now {
			used, _ := t.Row(i, l)
			r.into.add(q, l, used)
		}
	}
}
