package sim

import (
	"outrider/layout"
	"outrider/router"
	"outrider/trace"
)

// forecast is a guide that ranks by a predictor.
type forecast struct {
	*router.Keeper
	shape   layout.Shape
	trace   *trace.Trace
	tokens  int
	horizon int
	next    bool // the next layer's choice is known
	replay  *router.Histories
	history router.History
	layer   int       // last routed
	p       []float32 // by ordinal, latest forecast
	changed []int

	recall float64 // summed over layer executions
	scored int
}

func newForecast(r run, t *trace.Trace, tokens, horizon int) (*forecast, error) {
	shape := t.Header.Shape
	keeper, err := router.NewKeeper(shape)
	if err != nil {
		return nil, err
	}
	var p router.Predictor
	if r.predictor == "oracle" {
		p, err = router.NewOracle(shape, t)
	} else {
		p, err = router.New(r.predictor, shape)
	}
	if err != nil {
		return nil, err
	}
	return &forecast{
		Keeper: keeper, shape: shape, trace: t, tokens: tokens,
		horizon: min(horizon, shape.Layers), next: r.next,
		replay: router.NewHistories(p, t, tokens),
		layer:  shape.Layers - 1,
		p:      make([]float32, shape.Count()),
	}, nil
}

func (g *forecast) begin(token int) bool {
	g.history = g.replay.Begin(token)
	if g.trace.Tokens[token] < 0 {
		return false
	}
	g.changed = g.changed[:0]
	for layer := range g.horizon {
		g.score(layer)
	}
	return true
}

func (g *forecast) routed(token, layer int) []int {
	choice := g.replay.Choice(token, layer)
	if layer > 0 {
		g.recall += router.Found(g.row(layer), choice[0].Experts, g.shape.TopK)
		g.scored++
	}
	g.history.Observe(layer, choice)
	g.layer = layer
	g.Enter(layer)
	g.changed = g.changed[:0]
	row := g.row(layer)
	g.history.Score(layer, row)
	g.Set(layer, row)
	g.changed = append(g.changed, layer)
	// The next layer is always scored: it is what recall is measured by.
	for d := 1; d <= max(g.horizon, 1); d++ {
		if layer+d < g.shape.Layers {
			g.score(layer + d)
		}
	}
	if g.next {
		g.reveal(token, layer)
	}
	return g.changed
}

// score forecasts a layer's next execution and ranks by it.
func (g *forecast) score(layer int) {
	row := g.row(layer)
	g.history.Score(layer, row)
	g.SetNext(layer, row)
	g.changed = append(g.changed, layer)
}

// reveal replaces the forecast of the next layer by what it will use.
func (g *forecast) reveal(token, layer int) {
	layer++
	if layer == g.shape.Layers {
		token, layer = token+1, 0
	}
	if token >= g.tokens {
		return
	}
	row := g.row(layer)
	clear(row)
	used, _ := g.trace.Row(token, layer)
	for _, e := range used {
		row[e] = 1
	}
	g.SetNext(layer, row)
	g.changed = append(g.changed, layer)
}

func (g *forecast) row(layer int) []float32 { return g.p[layer*g.shape.Experts:][:g.shape.Experts] }
