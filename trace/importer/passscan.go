package importer

import (
	"errors"
	"maps"
	"slices"

	"outrider/layout"
	"outrider/trace"
)

// layerRows is what one place of a recording of llama.cpp tells: ids that one
// layer chose in one forward pass, token after token. The slices are valid only
// during the call that hands them over.
type layerRows struct {
	at      place
	pass    int64 // the pass's number where the form has one; otherwise always 0
	layer   int   // block number
	ids     []int32
	weights []float32 // as ids, or nil
	topK    int       // 0 where not told
	experts int       // 0 where not told
}

// passForm is a form that writes forward passes layer by layer.
type passForm struct {
	name string
	// each reads the file from its start.
	each func(fn func(*layerRows) error) error
	// whole: one call of fn holds all that a layer chose in a pass, so the same
	// layer again begins the next pass. Otherwise only a falling layer does.
	whole bool
	// lone: a pass of nothing but the last layer may occur; see passes.partial.
	lone bool
	// lists: why some passes hold lists of all experts instead of choices (see
	// misread.go); "" where they cannot.
	lists string
	// phase tells that of a pass's tokens by their number; nil where unknown.
	phase func(tokens int) trace.Phase
}

// passScan is what a first reading found.
type passScan struct {
	layers        map[int]bool
	topK, experts int
	rows          int64
	weighted      int64 // rows that had gate weights
	err           error // what does not fit together
}

// openPasses reads the file once for the shape, and gives what reads it again
// for the tokens.
func openPasses(in *input, form *passForm) (*content, error) {
	f := in.files[0]
	scan := passScan{layers: map[int]bool{}}
	err := form.each(func(r *layerRows) error {
		scan.err = scan.add(f, r)
		return scan.err
	})
	var corrupt *trace.CorruptError
	// Damage is met again, after the tokens before it have been delivered.
	if err != nil && (scan.rows == 0 || scan.err != nil || !errors.As(err, &corrupt)) {
		return nil, err
	}
	if scan.rows == 0 {
		return nil, f.damaged(place{}, "it holds no choice of experts")
	}
	ids := slices.Sorted(maps.Keys(scan.layers))
	shape, err := in.shape(layout.Shape{Layers: len(ids), Experts: scan.experts, TopK: scan.topK})
	if err != nil {
		return nil, err
	}
	shape.LayerIDs = blockNumbers(ids)
	h := trace.Header{
		Shape: shape, Weights: scan.weighted == scan.rows, IDs: trace.IDsLogical, Source: in.sourceText(form.name),
	}
	if scan.weighted > 0 && !h.Weights {
		in.note("gate weights are there for %d of %d layers of passes, so they were left out.", scan.weighted, scan.rows)
	}
	return &content{header: h, emit: func(emit emitter) error {
		p := newPasses(in, form, h, ids)
		p.emit = emit
		return p.read()
	}}, nil
}

func (s *passScan) add(f *file, r *layerRows) error {
	s.layers[r.layer] = true
	if len(s.layers) > layout.MaxLayers {
		return f.damaged(r.at, "there are more than %d different layers", layout.MaxLayers)
	}
	for _, told := range []struct {
		name string
		all  *int
		here int
	}{{"top-k", &s.topK, r.topK}, {"the number of experts", &s.experts, r.experts}} {
		if *told.all == 0 {
			*told.all = told.here
		}
		if told.here != 0 && told.here != *told.all {
			return f.damaged(r.at, "%s is %d, but was %d before", told.name, told.here, *told.all)
		}
	}
	s.rows++
	if r.weights != nil {
		s.weighted++
	}
	return nil
}

// promptsFirst is the phase in a recording of one sequence at a time: passes of
// several tokens are parts of a prompt. A prompt's last part may be one token too, so of
// the passes of one token that follow, the first stays unknown, the rest decode.
func promptsFirst() func(tokens int) trace.Phase {
	prompt, single := false, 0
	return func(tokens int) trace.Phase {
		if tokens > 1 {
			prompt, single = true, 0
			return trace.Prefill
		}
		if single++; prompt && single > 1 {
			return trace.Decode
		}
		return trace.PhaseUnknown
	}
}
