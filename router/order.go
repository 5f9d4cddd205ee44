package router

// Order ranks resident experts for eviction by what the routers chose, without
// a forecast: the one whose next use it expects last goes first. It has the
// methods of experts.Policy. Keeper is the other way to rank, by a forecast.
//
// Routed and Keys are for one goroutine at a time. Expect may be called from any
// goroutine at any time, with a lock held: it waits for nothing. No method
// allocates.
type Order interface {
	// Routed tells what the routers of a layer chose in one pass, one Choice for
	// each token of the pass, whichever sequence it belongs to. It counts as one
	// execution of the layer. Afterwards only the keys of that layer may have
	// changed. Ids and layers that the model does not have are left out; the
	// choices are not kept.
	Routed(layer int, choices []Choice)
	// Keys is one number for each expert of the layer: the larger goes first. The
	// slice is the order's own and changes with Routed.
	Keys(layer int) []float64
	// Expect turns a key into layer executions until the next use, as seen from
	// now: increasing in key.
	Expect(layer int, key float64) float64
}

var (
	_ Order = (*Recent)(nil)
	_ Order = (*LeastStale)(nil)
	_ Order = (*Optimum)(nil)
)

// neverUsed is a key beyond that of any expert that was used.
const neverUsed = 1 << 52

// filled is a slice of n times the same number.
func filled(n int, x float64) []float64 {
	s := make([]float64, n)
	for i := range s {
		s[i] = x
	}
	return s
}
