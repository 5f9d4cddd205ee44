package importer

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
)

// formEvalCallback is what llama.cpp's evaluation callback prints
// (llama-eval-callback and others): each tensor of the graph with its values.
//
//	common_debug_cb_eval:  ffn_moe_topk-3 = (i32)  VIEW(ffn_moe_argsort-3{64, 2, 1, 1}, }) = {4, 2, 1, 1}
//	    [
//	        [
//	            [     17.0000,       3.0000,      60.0000,       9.0000  ],
//	…
//	    sum = 312.000000
const formEvalCallback = "llama-eval-callback"

// The functions that print, of newer and older versions.
var evalPrinters = [][]byte{[]byte("common_debug_cb_eval:"), []byte("ggml_debug:")}

func sniffEvalCallback(p *peek) bool {
	for line := range bytes.Lines(p.head) {
		if _, ok := parseEvalTensor(line); ok {
			return true
		}
	}
	return false
}

func openEvalCallback(in *input) (*content, error) {
	c, err := openPasses(in, &passForm{name: formEvalCallback, each: in.files[0].evalCallback, whole: true, phase: promptsFirst()})
	if err == nil && c.header.Weights {
		in.note("The gate weights were printed with four decimals, so they are rounded.")
	}
	return c, err
}

// evalTensor is the head of one printed tensor.
type evalTensor struct {
	name string
	dims [4]int
	from int // first dimension of what it was made from; 0 where not told
}

// parseEvalTensor reads the line that introduces a tensor.
func parseEvalTensor(line []byte) (t evalTensor, ok bool) {
	for _, printer := range evalPrinters {
		if _, after, found := bytes.Cut(line, printer); found {
			line, ok = after, true
			break
		}
	}
	name, rest, found := bytes.Cut(line, []byte(" = ("))
	_, result, foundResult := bytes.Cut(rest, []byte(") = {"))
	if !ok || !found || !foundResult {
		return t, false
	}
	t.name = string(bytes.TrimSpace(name))
	dims, _, _ := bytes.Cut(result, []byte("}"))
	for i, dim := range bytes.Split(dims, []byte(",")) {
		n, ok := digits(bytes.TrimSpace(dim))
		if !ok || i == len(t.dims) {
			return t, false
		}
		t.dims[i] = n
	}
	if _, source, found := bytes.Cut(rest, []byte("{")); found {
		first, _, _ := bytes.Cut(source, []byte(","))
		t.from, _ = digits(bytes.TrimSpace(first))
	}
	return t, t.dims[3] > 0
}

// layerOf is the layer of a tensor called prefix-N.
func (t *evalTensor) layerOf(prefix string) (int, bool) {
	n, found := bytes.CutPrefix([]byte(t.name), []byte(prefix+"-"))
	if !found {
		return 0, false
	}
	return digits(n)
}

// evalReader picks the router's tensors out of the print.
type evalReader struct {
	f  *file
	fn func(*layerRows) error

	at     place
	kind   evalKind
	layer  int
	tensor evalTensor
	want   int       // values that the tensor at hand has
	values []float32 // so far

	rows    layerRows // the layer whose weights may still come
	pending bool
}

// evalKind is what a tensor is to us.
type evalKind uint8

const (
	evalOther   evalKind = iota // passed over
	evalIDs                     // ffn_moe_topk
	evalWeights                 // ffn_moe_weights, and what they become by normalisation
)

// Gate weights, the later in the graph the better.
var evalWeightNames = []string{"ffn_moe_weights", "ffn_moe_weights_softmax", "ffn_moe_weights_norm"}

func (f *file) evalCallback(fn func(*layerRows) error) error {
	e := &evalReader{f: f, fn: fn}
	last := place{}
	err := f.eachLine(func(at place, line []byte) error {
		last = at
		return e.line(at, line)
	})
	if err != nil {
		return err
	}
	if e.kind != evalOther {
		return f.damaged(last, "the file ends inside tensor %s", e.tensor.name)
	}
	return e.deliver()
}

func (e *evalReader) line(at place, line []byte) error {
	if t, ok := parseEvalTensor(line); ok {
		if e.kind != evalOther {
			return e.f.damaged(at, "tensor %s ends after %d of %d values", e.tensor.name, len(e.values), e.want)
		}
		return e.begin(at, t)
	}
	if e.kind == evalOther {
		return nil
	}
	if bytes.HasPrefix(line, []byte("sum")) {
		return e.end(at)
	}
	return e.row(at, line)
}

// begin starts a tensor, if it is one of ours.
func (e *evalReader) begin(at place, t evalTensor) error {
	e.at, e.tensor, e.kind = at, t, evalOther
	if layer, ok := t.layerOf("ffn_moe_topk"); ok {
		if err := e.deliver(); err != nil {
			return err
		}
		e.kind, e.layer = evalIDs, layer
	}
	for _, name := range evalWeightNames {
		if layer, ok := t.layerOf(name); ok && e.pending && layer == e.rows.layer {
			e.kind, e.layer = evalWeights, layer
		}
	}
	if e.kind == evalOther {
		return nil
	}
	e.want, e.values = 1, e.values[:0]
	for _, dim := range t.dims {
		if dim < 1 || e.want > MaxHeld/dim {
			return e.f.damaged(at, "tensor %s has shape %v, want at most %d values", t.name, t.dims, MaxHeld)
		}
		e.want *= dim
	}
	if e.kind == evalIDs && (t.dims[2] != 1 || t.dims[3] != 1) {
		return e.f.damaged(at, "tensor %s has shape %v, want top-k, tokens, 1, 1", t.name, t.dims)
	}
	return nil
}

// row takes the values of a line. Other lines are those of a log that ran into the
// same file; that no value got lost is seen by their number.
func (e *evalReader) row(at place, line []byte) error {
	if bytes.Contains(line, []byte("...")) {
		return e.elided(at)
	}
	if line[0] != '[' && line[0] != ']' {
		return nil
	}
	line = bytes.Trim(line, "[], \t")
	if len(line) == 0 {
		return nil
	}
	for text := range bytes.SplitSeq(line, []byte(",")) {
		v, err := strconv.ParseFloat(string(bytes.TrimSpace(text)), 32)
		if err != nil {
			return e.f.damaged(at, "tensor %s: %.20q is no number", e.tensor.name, bytes.TrimSpace(text))
		}
		if e.kind == evalIDs && (v != math.Trunc(v) || v < 0 || v >= 1<<24) {
			return e.f.damaged(at, "tensor %s: %v is no expert id", e.tensor.name, v)
		}
		if len(e.values) == e.want {
			return e.f.damaged(at, "tensor %s has more than its %d values", e.tensor.name, e.want)
		}
		e.values = append(e.values, float32(v))
	}
	return nil
}

func (e *evalReader) elided(at place) error {
	return fmt.Errorf("%s: line %d: %w: tensor %s of shape %v was printed with gaps (...): print at most 6 tokens a pass (-ub 6) of a model with top-k up to 6, or record with llama.cpp's moe-trace instead",
		e.f.path, at.line, ErrLossy, e.tensor.name, e.tensor.dims)
}

// end closes the tensor at hand.
func (e *evalReader) end(at place) error {
	if len(e.values) != e.want {
		return e.f.damaged(at, "tensor %s has %d values, want %d for its shape %v", e.tensor.name, len(e.values), e.want, e.tensor.dims)
	}
	kind := e.kind
	e.kind = evalOther
	if kind == evalWeights {
		if e.want != len(e.rows.ids) {
			return e.f.damaged(at, "tensor %s has %d values, but %d experts were chosen", e.tensor.name, e.want, len(e.rows.ids))
		}
		e.rows.weights = append(e.rows.weights[:0], e.values...)
		return nil
	}
	k := e.tensor.dims[0]
	e.rows = layerRows{at: e.at, layer: e.layer, topK: k, ids: e.rows.ids[:0]}
	if e.tensor.from > k {
		e.rows.experts = e.tensor.from
	}
	for _, v := range e.values {
		e.rows.ids = append(e.rows.ids, int32(v))
	}
	if err := distinct(e.rows.ids, k); err != nil {
		return e.f.damaged(e.at, "tensor %s: %v", e.tensor.name, err)
	}
	e.pending = true
	return nil
}

// deliver hands the layer over whose weights have come, if any were to come.
func (e *evalReader) deliver() error {
	if !e.pending {
		return nil
	}
	e.pending = false
	return e.fn(&e.rows)
}
