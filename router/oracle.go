package router

import (
	"fmt"
	"sync"

	"outrider/layout"
	"outrider/trace"
)

// Oracle reads the future from a trace: 1 for what is used at the layer's next
// execution, else 0. It is a bound for tests and simulation, never a forecast.
//
// The n-th history follows the n-th sequence of the trace, in order of first
// appearance, and must be given the trace's passes as they are. A history
// without a sequence, or past its end, scores 0.
type Oracle struct {
	shape layout.Shape
	trace *trace.Trace
	rows  [][]int // tokens of each sequence

	mu   sync.Mutex
	next int // sequence of the next history
}

var _ Predictor = (*Oracle)(nil)

// NewOracle makes an oracle of a trace, which it keeps and which must not
// change. It fails if the trace is of another shape.
func NewOracle(shape layout.Shape, t *trace.Trace) (*Oracle, error) {
	if err := shape.Validate(); err != nil {
		return nil, fmt.Errorf("router: oracle: %w", err)
	}
	if !shape.Equal(t.Header.Shape) {
		return nil, fmt.Errorf("router: oracle: %w: the trace of %q has %d layers × %d experts, top %d", ErrShape,
			t.Header.Model, t.Header.Shape.Layers, t.Header.Shape.Experts, t.Header.Shape.TopK)
	}
	o := &Oracle{shape: shape, trace: t}
	index := map[int64]int{}
	for i, seq := range t.Seqs {
		at, ok := index[seq]
		if !ok {
			at = len(o.rows)
			index[seq] = at
			o.rows = append(o.rows, nil)
		}
		o.rows[at] = append(o.rows[at], i)
	}
	return o, nil
}

// Name is "oracle".
func (o *Oracle) Name() string { return "oracle" }

// NewHistory starts the trace's next sequence.
func (o *Oracle) NewHistory() History { return o.newHistory() }

func (o *Oracle) newHistory() *oracleHistory {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := &oracleHistory{oracle: o, observed: make([]bool, o.shape.Layers)}
	if o.next < len(o.rows) {
		h.rows = o.rows[o.next]
		o.next++
	}
	return h
}

type oracleHistory struct {
	oracle   *Oracle
	rows     []int // tokens of the sequence from this pass on
	width    int   // tokens of this pass; 0 before the first
	observed []bool
}

// Begin moves on to the next pass: as many tokens as are named, or one.
func (h *oracleHistory) Begin(_ trace.Phase, tokens []int32) {
	h.rows = h.rows[min(h.width, len(h.rows)):]
	h.width = max(len(tokens), 1)
	clear(h.observed)
}

// Observe notes that the layer is done, and how many tokens the pass has.
func (h *oracleHistory) Observe(layer int, choices []Choice) {
	if layer < 0 || layer >= len(h.observed) {
		return
	}
	h.observed[layer] = true
	h.width = max(len(choices), 1)
}

// Score writes 1 for what the layer uses next, else 0.
func (h *oracleHistory) Score(layer int, dst []float32) {
	if !fits(h.oracle.shape, layer, dst) || !h.reveal(layer, h.observed[layer], dst) {
		clear(dst)
	}
}

// reveal writes what the layer uses in this pass, or in the next one, of which it
// knows no more than that it has a token. It reports whether the sequence goes
// that far, and writes nothing otherwise.
func (h *oracleHistory) reveal(layer int, later bool, dst []float32) bool {
	from, to := 0, max(h.width, 1)
	if later {
		from, to = h.width, h.width+1
	}
	if from >= len(h.rows) {
		return false
	}
	clear(dst)
	for _, i := range h.rows[from:min(to, len(h.rows))] {
		experts, _ := h.oracle.trace.Row(i, layer)
		for _, e := range experts {
			dst[e] = 1
		}
	}
	return true
}
