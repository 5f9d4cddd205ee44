package evaluate

import (
	"context"
	"errors"
	"fmt"
	"math"

	"outrider/experts"
	"outrider/internal/passes"
	"outrider/layout"
	"outrider/router"
	"outrider/trace"
)

// ErrOption: an option is out of range.
var ErrOption = errors.New("option out of range")

// CacheOptions of a Cache. One of the two sizes is needed; the first that is set
// counts.
type CacheOptions struct {
	Experts int     // capacity
	Share   float64 // capacity over all experts of the model, over 0 to 1

	Warm      int              // tokens replayed first, learned from but not counted
	MaxTokens int              // tokens counted; 0 means all that are left
	Progress  func(tokens int) // told now and then how many tokens were replayed; nil: nobody
}

// Capacity is the cache's size in experts. It fails with ErrOption where that
// does not hold one layer of one token.
func (o CacheOptions) Capacity(shape layout.Shape) (int, error) {
	n := o.Experts
	if n == 0 {
		if !(o.Share > 0 && o.Share <= 1) {
			return 0, fmt.Errorf("evaluate: %w: cache share is %v, want more than 0 to 1", ErrOption, o.Share)
		}
		n = int(math.Round(o.Share * float64(shape.Count())))
	}
	if n = min(n, shape.Count()); n < shape.TopK {
		return 0, fmt.Errorf("evaluate: %w: a cache of %d experts cannot hold the %d of one layer of one token; raise the cache size", ErrOption, n, shape.TopK)
	}
	return n, nil
}

// Counts are what a cache saw of a layer, or of all.
type Counts struct {
	Executions int64 // of layers, each by one token
	Used       int64 // experts chosen
	Misses     int64 // of those, not in memory
	Covered    int64 // of those, among the guesses
	Complete   int64 // executions whose experts all were in memory or among the guesses
}

func (c *Counts) add(o Counts) {
	c.Executions += o.Executions
	c.Used += o.Used
	c.Misses += o.Misses
	c.Covered += o.Covered
	c.Complete += o.Complete
}

// Hits is the share of the experts chosen that were in memory.
func (c Counts) Hits() float64 { return 1 - float64(c.Misses)/float64(max(c.Used, 1)) }

// MissCoverage is the share of misses that were among the guesses; false if
// there were no misses.
func (c Counts) MissCoverage() (float64, bool) {
	return float64(c.Covered) / float64(max(c.Misses, 1)), c.Misses > 0
}

// CompleteRate is the share of executions that were complete with the guesses.
func (c Counts) CompleteRate() float64 {
	return float64(c.Complete) / float64(max(c.Executions, 1))
}

// Cache replays a trace through a cache that keeps by the predictor, which is best
// fresh, and counts by layer what its forecasts would have covered. It fails on
// options out of range (ErrOption) and with the context's error when that ends.
func Cache(ctx context.Context, p router.Predictor, t *trace.Trace, o CacheOptions) ([]Counts, error) {
	c, err := newCached(p, t, o)
	if err != nil {
		return nil, err
	}
	for done := 0; ; done++ {
		parts := c.schedule.Next()
		if parts == nil {
			return c.counts, nil
		}
		if done%64 == 0 {
			if ctx.Err() != nil {
				return nil, fmt.Errorf("evaluate: %s stopped at token %d: %w", p.Name(), done, context.Cause(ctx))
			}
			if o.Progress != nil {
				o.Progress(done)
			}
		}
		if err := c.pass(parts, done >= o.Warm); err != nil {
			return nil, fmt.Errorf("evaluate: %s: token %d: %w", p.Name(), done, err)
		}
	}
}

// cached is one replay through a cache.
type cached struct {
	shape    layout.Shape
	schedule *passes.Schedule
	union    *passes.Union
	table    *experts.Table
	all      *router.Sequences
	open     map[int64]*router.Sequence
	step     int64 // layer execution that is under way, -1 before the first
	absent   []bool
	missing  []int32
	counts   []Counts // by layer
}

func newCached(p router.Predictor, t *trace.Trace, o CacheOptions) (*cached, error) {
	shape := t.Header.Shape
	keeper, err := router.NewKeeper(shape)
	if err != nil {
		return nil, fmt.Errorf("evaluate: %w", err)
	}
	capacity, err := o.Capacity(shape)
	if err != nil {
		return nil, err
	}
	table, err := experts.NewTable(experts.TableOptions{
		Shape: shape, BudgetBytes: int64(capacity), Bytes: func(int) int64 { return 1 }, Policy: keeper, Protect: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("evaluate: %w", err)
	}
	limit := 0
	if o.MaxTokens > 0 {
		limit = o.Warm + o.MaxTokens
	}
	return &cached{
		shape: shape, schedule: passes.New(t, passes.Options{MaxTokens: limit}), union: passes.NewUnion(shape),
		table: table, all: router.NewSequences(shape, p, keeper, table.Invalidate), open: map[int64]*router.Sequence{},
		step: -1, absent: make([]bool, shape.Experts), counts: make([]Counts, shape.Layers),
	}, nil
}

// pass executes all layers for one token.
func (c *cached) pass(parts []passes.Part, counts bool) error {
	part := parts[0]
	q := c.open[part.Seq]
	if q == nil {
		q = c.all.Open(c.step)
		c.open[part.Seq] = q
	}
	phase, tokens := c.schedule.Known(part)
	q.Begin(c.step, phase, tokens)
	q.LookAhead(1)
	for layer := range c.shape.Layers {
		c.step++
		c.table.Step()
		c.union.Gather(c.schedule, parts, layer)
		if counts {
			c.counts[layer].add(c.judge(layer, q.Scores(layer)))
		}
		if err := c.execute(q, layer); err != nil {
			return fmt.Errorf("layer %d: %w", layer, err)
		}
	}
	if part.Last {
		q.Close()
		delete(c.open, part.Seq)
	}
	return nil
}

// judge compares what the layer uses with what is in memory and what is scored
// highest of the rest.
func (c *cached) judge(layer int, p []float32) Counts {
	for e := range c.absent {
		c.absent[e] = !c.table.Resident(layout.ExpertID{Layer: int32(layer), Index: int32(e)})
	}
	out := Counts{Executions: 1, Used: int64(len(c.union.Experts))}
	for _, e := range c.union.Experts {
		if !c.absent[e] {
			continue
		}
		out.Misses++
		if c.rank(p, e) < c.shape.TopK {
			out.Covered++
		}
	}
	if out.Covered == out.Misses {
		out.Complete = 1
	}
	return out
}

// rank is how many experts that are not in memory score higher than e.
func (c *cached) rank(p []float32, e int32) int {
	n, own := 0, p[e]
	for i, x := range p {
		if c.absent[i] && (x > own || x == own && i < int(e)) {
			n++
		}
	}
	return n
}

// execute brings what the layer uses. The forecast learns before room is made, as
// in the runtime, where reads take their time.
func (c *cached) execute(q *router.Sequence, layer int) error {
	c.missing = c.missing[:0]
	for _, e := range c.union.Experts {
		id := layout.ExpertID{Layer: int32(layer), Index: e}
		if c.table.Use(id).Resident() {
			c.table.Pin(id)
			continue
		}
		c.missing = append(c.missing, e)
	}
	q.Observe(c.step, layer, c.union.Choices[0])
	q.LookAhead(1)
	for _, e := range c.missing {
		id := layout.ExpertID{Layer: int32(layer), Index: e}
		if _, err := c.table.Begin(id, experts.Demand, 0); err != nil {
			return err
		}
		c.table.Commit(id, 1)
	}
	for _, e := range c.union.Experts {
		c.table.Unpin(layout.ExpertID{Layer: int32(layer), Index: e})
	}
	return nil
}
