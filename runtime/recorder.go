package runtime

import (
	"outrider/layout"
	"outrider/router"
	"outrider/trace"
)

// recorder gathers what the routers chose in one pass, layer by layer, and
// writes it token by token when the pass ends. A nil recorder records nothing.
type recorder struct {
	w      trace.Sink
	shape  layout.Shape
	phase  trace.Phase
	tokens []int32
	pos    int64
	rows   []trace.Activation
	n      int // rows in use
	// unweighted marks rows for which some layer told no gate weights: then the
	// whole row's are unknown.
	unweighted []bool
	failure    error
	seq        int64
}

func newRecorder(w trace.Sink, shape layout.Shape, seq int64) *recorder {
	return &recorder{w: w, shape: shape, seq: seq}
}

func (r *recorder) begin(phase trace.Phase, tokens []int32, pos int64) {
	if r == nil {
		return
	}
	r.phase, r.tokens, r.pos, r.n = phase, append(r.tokens[:0], tokens...), pos, 0
}

// observe notes one layer's choices. A choice of more experts than the model's
// top-k does not fit a trace and is cut to it.
func (r *recorder) observe(layer int, choices []router.Choice) {
	if r == nil {
		return
	}
	if r.n == 0 {
		r.rowsFor(len(choices))
	}
	k := r.shape.TopK
	for t := range choices[:min(r.n, len(choices))] {
		row := &r.rows[t]
		ids := row.Experts[layer*k : (layer+1)*k]
		n := copy(ids, choices[t].Experts)
		for ; n < k; n++ {
			ids[n] = -1
		}
		if len(choices[t].Weights) < len(choices[t].Experts) {
			r.unweighted[t] = true
		}
		copy(row.Weights[layer*k:(layer+1)*k], choices[t].Weights)
	}
}

// rowsFor prepares an empty row for each token of the pass.
func (r *recorder) rowsFor(tokens int) {
	size := r.shape.Layers * r.shape.TopK
	for len(r.rows) < tokens {
		r.rows = append(r.rows, trace.Activation{Experts: make([]int32, size), Weights: make([]float32, size)})
		r.unweighted = append(r.unweighted, false)
	}
	r.n = tokens
	for t := range r.rows[:tokens] {
		row := &r.rows[t]
		row.Seq, row.Pos, row.Phase, row.Token = r.seq, r.pos+int64(t), r.phase, -1
		if t < len(r.tokens) {
			row.Token = r.tokens[t]
		}
		for i := range row.Experts {
			row.Experts[i] = -1
		}
		clear(row.Weights)
		r.unweighted[t] = false
	}
}

// drop takes the last tokens of the pass back, before it is written.
func (r *recorder) drop(tokens int) {
	if r != nil {
		r.n -= min(r.n, tokens)
	}
}

func (r *recorder) flush() {
	if r == nil || r.n == 0 {
		return
	}
	for t := range r.rows[:r.n] {
		row := r.rows[t]
		if r.unweighted[t] {
			row.Weights = nil
		}
		if err := r.w.Append(&row); err != nil && r.failure == nil {
			r.failure = err
		}
	}
	r.n = 0
}

func (r *recorder) err() error {
	if r == nil {
		return nil
	}
	return r.failure
}
