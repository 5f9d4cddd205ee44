package sim

import (
	"outrider/experts"
	"outrider/layout"
	"outrider/trace"
)

// optimum is Belady's policy: it knows when each expert is used next. As a bound
// it takes the experts of a layer one by one, and one that had its turn may go
// for the next: no order of loading them can have more hits.
type optimum struct {
	trace *trace.Trace
	shape layout.Shape
	now   float64
	next  []float64 // by entry of the trace's experts, the entry of the next use
	keys  []float64 // by ordinal
}

// neverAgain is beyond any entry.
const neverAgain = 1 << 52

func newOptimum(t *trace.Trace, tokens int) *optimum {
	shape := t.Header.Shape
	g := &optimum{
		trace: t, shape: shape,
		next: make([]float64, tokens*shape.Layers*shape.TopK),
		keys: make([]float64, shape.Count()),
	}
	for i := range g.keys {
		g.keys[i] = neverAgain
	}
	for i := tokens - 1; i >= 0; i-- {
		for l := range shape.Layers {
			used, _ := t.Row(i, l)
			at := (i*shape.Layers + l) * shape.TopK
			for j, e := range used {
				key := &g.keys[l*shape.Experts+int(e)]
				g.next[at+j] = *key
				*key = float64(at + j)
			}
		}
	}
	return g
}

func (*optimum) begin(int) bool { return false }

// routed says when the layer is used: its experts' own turn comes in use.
func (g *optimum) routed(token, layer int) []int {
	g.now = float64((token*g.shape.Layers + layer) * g.shape.TopK)
	return nil
}

// use says that the at-th expert of the layer has had its turn.
func (g *optimum) use(token, layer, at int) {
	used, _ := g.trace.Row(token, layer)
	g.keys[layer*g.shape.Experts+int(used[at])] = g.next[(token*g.shape.Layers+layer)*g.shape.TopK+at]
}

func (g *optimum) Keys(layer int) []float64 { return g.keys[layer*g.shape.Experts:][:g.shape.Experts] }

func (g *optimum) Expect(_ int, key float64) float64 {
	return (key - g.now) / float64(g.shape.TopK)
}

// demandOneByOne serves a layer's experts for the optimum.
func (e *engine) demandOneByOne(token, layer int, used []int32) (ready float64, err error) {
	misses := 0
	e.demanded += int64(len(used))
	for at, x := range used {
		id := layout.ExpertID{Layer: int32(layer), Index: x}
		if !e.table.Use(id).Resident() {
			misses++
			if _, err := e.table.Begin(id, experts.Demand, 0); err != nil {
				return 0, err
			}
			e.table.Commit(id, 0)
		}
		e.best.use(token, layer, at)
		e.table.Invalidate(layer)
	}
	e.hits += int64(len(used) - misses)
	e.reads += int64(misses)
	if misses == 0 {
		e.complete++
	}
	return e.now + float64(misses)*e.drive.each, nil
}
