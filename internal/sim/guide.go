package sim

import (
	"outrider/experts"
	"outrider/router"
	"outrider/trace"
)

// guide is what a run knows and how it ranks.
type guide interface {
	experts.Policy
	// begin says that the pass of a token starts, and reports whether that
	// brought a new forecast.
	begin(token int) bool
	// routed says that the routing of a layer of that pass is known. It
	// returns the layers whose keys changed, valid until the next call.
	routed(token, layer int) []int
}

// past is a guide that knows the past only: LRU and LFU.
type past struct {
	*router.Recent
	trace   *trace.Trace
	changed [1]int
}

func (*past) begin(int) bool { return false }

func (g *past) routed(token, layer int) []int {
	used, _ := g.trace.Row(token, layer)
	for _, e := range used {
		g.Touch(layer, int(e))
	}
	g.changed[0] = layer
	return g.changed[:]
}
