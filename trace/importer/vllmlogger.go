package importer

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"outrider/layout"
	"outrider/trace"
)

// logLine is a line of vLLM's MoE loggers, of which there are several with the
// same lines: a meta line, then a route line for each row that a layer's router saw.
// Token_idx counts the rows of a forward pass and begins anew with each; req_id
// tells nothing (constant, or new with each pass).
type logLine struct {
	Type    string `json:"type"`
	Model   string `json:"model_id"`
	Layers  []int  `json:"layers_logged"`
	TopK    int    `json:"top_k"`
	Experts int    `json:"num_experts"` // some loggers tell it

	Token   int64     `json:"token_idx"`
	Layer   int       `json:"layer"`
	IDs     []int32   `json:"topk_ids"`
	Weights []float32 `json:"topk_weights"`
}

// loggedLayer is all rows of one layer.
type loggedLayer struct {
	file    *file
	ids     []int32
	weights []float32
	starts  []int32 // of each pass: its first row
}

// vllmLog is a recording: most loggers log one layer a run, so that its layers
// come from several runs of the same prompts.
type vllmLog struct {
	in     *input
	meta   logLine // the first one
	check  *rowCheck
	layers map[int]*loggedLayer
	logged []int // layers that the meta lines announce
	held   int
	bare   int64 // rows without weights
	order  []*loggedLayer
	failed error // where reading ended early
}

func openLogger(in *input) (*content, error) {
	v := &vllmLog{in: in, layers: map[int]*loggedLayer{}}
	for i, f := range in.files {
		if v.failed = v.read(f); v.failed != nil && (i < len(in.files)-1 || v.missing() >= 0 || !v.hasRowsOf(f)) {
			return nil, v.failed // otherwise the rows before it are told first
		}
	}
	if len(v.layers) == 0 {
		return nil, in.files[0].damaged(place{}, "it holds no route line")
	}
	if l := v.missing(); l >= 0 {
		in.note("Layer %d should have been logged, but there are no rows of it.", l)
	}
	numbers := slices.Sorted(maps.Keys(v.layers))
	shape, err := in.shape(layout.Shape{Layers: len(numbers), Experts: v.meta.Experts, TopK: v.meta.TopK})
	if err != nil {
		return nil, err
	}
	if numbers[len(numbers)-1] != len(numbers)-1 {
		shape.LayerIDs = numbers
	}
	for _, number := range numbers {
		v.order = append(v.order, v.layers[number])
	}
	h := trace.Header{Model: v.meta.Model, Shape: shape, Source: in.sourceText("vllm-moe-logger"), Weights: v.bare == 0, Sequences: trace.No}
	if h.Weights {
		h.Ranked = trace.FactOf(v.ranked())
	}
	return &content{header: h, emit: func(out emitter) error { return v.emit(h, out) }}, nil
}

// read adds a file's rows.
func (v *vllmLog) read(f *file) error {
	var l logLine
	begun := false
	mine := map[int]bool{}
	return f.eachLine(func(at place, line []byte) error {
		l = logLine{Token: -1, Layer: -1, IDs: l.IDs[:0], Weights: l.Weights[:0]}
		if err := json.Unmarshal(line, &l); err != nil {
			return f.damaged(at, "the line is no meta or route line: %v", err)
		}
		switch {
		case l.Type == "meta" && begun:
			return f.damaged(at, "a second meta line: another run was added to the file. Split it")
		case l.Type == "meta":
			begun = true
			return v.begin(f, at, l)
		case l.Type != "route":
			return f.damaged(at, "the type is %.20q, want \"meta\" or \"route\"", l.Type)
		case !begun:
			return f.damaged(at, "a route line stands before the meta line")
		case l.Layer < 0 || l.Layer > math.MaxInt32:
			return f.damaged(at, "the line names no layer of 0 or more")
		}
		if err := v.check.check(l.IDs); err != nil {
			return f.damaged(at, "layer %d: %v", l.Layer, err)
		}
		if !mine[l.Layer] {
			mine[l.Layer] = true
			if o := v.layers[l.Layer]; o != nil {
				return f.damaged(at, "layer %d is in %s too: import one run alone", l.Layer, o.file.name())
			}
			if len(v.layers) == layout.MaxLayers {
				return f.damaged(at, "there are more than %d layers", layout.MaxLayers)
			}
			v.layers[l.Layer] = &loggedLayer{file: f}
		}
		if err := v.add(v.layers[l.Layer], &l); err != nil {
			return f.damaged(at, "layer %d: %v", l.Layer, err)
		}
		return nil
	})
}

// missing is a layer that was announced, but has no rows; -1 if there is none.
func (v *vllmLog) missing() int {
	if i := slices.IndexFunc(v.logged, func(l int) bool { return v.layers[l] == nil }); i >= 0 {
		return v.logged[i]
	}
	if len(v.layers) == 0 {
		return 0
	}
	return -1
}

// hasRowsOf reports whether some layer comes from the file.
func (v *vllmLog) hasRowsOf(f *file) bool {
	for _, o := range v.layers {
		if o.file == f {
			return true
		}
	}
	return false
}

// begin takes a meta line: all files must be of one model.
func (v *vllmLog) begin(f *file, at place, l logLine) error {
	v.logged = append(v.logged, l.Layers...)
	if v.check == nil {
		v.meta = l
		// What rows are checked by must be known now; the layers are counted later.
		shape, err := v.in.shape(layout.Shape{Layers: max(v.in.opts.Layers, 1), Experts: l.Experts, TopK: l.TopK})
		if err != nil {
			return err
		}
		v.meta.Experts, v.meta.TopK = shape.Experts, shape.TopK
		v.check = newRowCheck(shape.Experts, shape.TopK)
		return nil
	}
	if l.Model != v.meta.Model || l.TopK != v.meta.TopK || (l.Experts != 0 && l.Experts != v.meta.Experts) {
		return f.damaged(at, "the run is of model %.60q, top-k %d, but that of %s is of %.60q, top-k %d", l.Model, l.TopK, v.in.files[0].name(), v.meta.Model, v.meta.TopK)
	}
	return nil
}

// add adds a row, which begins a pass if its token_idx is 0.
func (v *vllmLog) add(o *loggedLayer, l *logLine) error {
	row := int64(len(o.ids) / v.meta.TopK)
	next := int64(0)
	if n := len(o.starts); n > 0 {
		next = row - int64(o.starts[n-1])
	}
	switch {
	case l.Token != 0 && (l.Token != next || next == 0):
		return fmt.Errorf("token_idx is %d, want %d, or 0 where a pass begins", l.Token, next)
	case len(l.Weights) != 0 && len(l.Weights) != len(l.IDs):
		return fmt.Errorf("the row has %d weights for %d experts", len(l.Weights), len(l.IDs))
	case v.held > MaxHeld:
		return fmt.Errorf("the layers lie apart, and there are more than %d expert ids: split the files", MaxHeld)
	}
	if l.Token == 0 {
		o.starts = append(o.starts, int32(row))
	}
	o.ids = append(o.ids, l.IDs...)
	o.weights = append(o.weights, l.Weights...)
	if len(l.Weights) == 0 {
		v.bare++
		o.weights = append(o.weights, make([]float32, len(l.IDs))...)
	}
	v.held += len(l.IDs) + 1
	return nil
}

// ranked reports whether no row's weights rise.
func (v *vllmLog) ranked() bool {
	k := v.meta.TopK
	for _, o := range v.order {
		for i, w := range o.weights {
			if i%k > 0 && w > o.weights[i-1] {
				return false
			}
		}
	}
	return true
}
