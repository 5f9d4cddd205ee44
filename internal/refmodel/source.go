package refmodel

import (
	"context"

	"outrider/router"
	"outrider/trace"
)

// experts is where a sequence's expert weights come from: the runtime
// (streamed) or, in tests, memory. The model sees experts through nothing else.
type experts interface {
	// step starts a pass and tells its tokens, before layer 0.
	step(phase trace.Phase, tokens []int32)
	// look shows what a layer's router is about to see of one token, so that the
	// next layers' experts can be foreseen. It changes nothing that is computed.
	look(layer int, hidden []float32)
	// each calls compute for every expert that the choices name, once each, in
	// the order they arrive. The expert's bytes are valid inside the call
	// only. It returns compute's first error, or why an expert did not come.
	each(ctx context.Context, layer int, choices []router.Choice, compute func(expert) error) error
	close() error
}

// expert is one expert's weights, lent.
type expert interface {
	Index() int
	// part is a projection by name: "gate", "up", "down" or "gate_up".
	part(name string) (weights, bool)
}

// weights is a matrix in a checkpoint's own encoding.
type weights struct {
	typ        string // as the checkpoint names it: "Q8_0", "F32" …
	cols, rows int
	data       []byte
}

// rowsFrom cuts a matrix to the rows from first on, n of them.
func (w weights) rowsFrom(first, n int) weights {
	size := len(w.data) / w.rows
	w.data, w.rows = w.data[first*size:(first+n)*size], n
	return w
}
