package importer

import (
	"errors"
	"fmt"

	"outrider/layout"
	"outrider/trace"
)

// Engines that answer a request with what its tokens were routed to (vLLM,
// SGLang) send an array [tokens, layers, k] of ids, where layers are all hidden
// layers of the model. It is cut out of a buffer that begins as zeros: a layer
// without a router (dense) is k zeros for every token, and so is a token that
// was not captured. A router that chooses more than one expert never names one
// twice, so for k > 1 such rows are certain.

// routedSequence is one request.
type routedSequence struct {
	file   *file
	at     place
	start  int64 // position of the first row
	prompt int64 // tokens of the prompt, -1 where not told
	// rows calls fn with the ids of each token, of all layers; they are valid
	// during the call.
	rows func(fn func(at place, ids []int32) error) error
}

// routedForm is a recording of requests.
type routedForm struct {
	name string
	each func(fn func(*routedSequence) error) error
	ids  trace.IDs
}

// errSeen ends the first reading when every layer was seen to have a router.
var errSeen = errors.New("every layer has a router")

// openRouted makes a trace of requests. Shape is what the form tells, its layers
// all hidden layers.
func openRouted(in *input, form *routedForm, told layout.Shape) (*content, error) {
	all, err := in.shape(told)
	if err != nil {
		return nil, err
	}
	if all.Layers*all.TopK > trace.MaxIDs {
		return nil, fmt.Errorf("%s: %d layers of %d ids are more than the %d that a token may have", in.files[0].path, all.Layers, all.TopK, trace.MaxIDs)
	}
	kept, err := routedLayers(in, form, all)
	if err != nil {
		return nil, err
	}
	shape := all
	shape.Layers = len(kept)
	shape.LayerIDs = in.keptIDs(all.Layers, kept)
	if n := all.Layers - len(kept); n > 0 {
		in.note("%d of %d layers hold nothing but zeros: they have no router and were left out.", n, all.Layers)
	}
	h := trace.Header{Shape: shape, IDs: form.ids, Sequences: trace.Yes, Source: in.sourceText(form.name)}
	return &content{header: h, emit: func(emit emitter) error {
		e := &routedEmitter{in: in, all: all, kept: kept, emit: emit}
		return e.run(form)
	}}, nil
}

// keptIDs are the block numbers of the layers that were kept of all: what the
// caller told for all, or their places; nil where nothing was left out.
func (in *input) keptIDs(all int, kept []int) []int {
	numbers := in.opts.LayerIDs
	switch {
	case len(numbers) == all:
		ids := make([]int, len(kept))
		for i, l := range kept {
			ids[i] = numbers[l]
		}
		return ids
	case len(kept) < all:
		return kept
	}
	return nil
}

// routedLayers are the layers in which some token was routed.
func routedLayers(in *input, form *routedForm, all layout.Shape) ([]int, error) {
	routed, left, rows := make([]bool, all.Layers), all.Layers, 0
	var first *file
	err := form.each(func(s *routedSequence) error {
		first = s.file
		return s.rows(func(_ place, ids []int32) error {
			rows++
			for l := range routed {
				if !routed[l] && !(all.TopK > 1 && allZero(ids[l*all.TopK:(l+1)*all.TopK])) {
					routed[l] = true
					left--
				}
			}
			if left == 0 {
				return errSeen
			}
			return nil
		})
	})
	var corrupt *trace.CorruptError
	// Damage is met again, after the tokens before it have been delivered.
	if err != nil && !errors.Is(err, errSeen) && (rows == 0 || !errors.As(err, &corrupt)) {
		return nil, err
	}
	var kept []int
	for l, yes := range routed {
		if yes {
			kept = append(kept, l)
		}
	}
	switch {
	case first == nil:
		return nil, in.files[0].damaged(place{}, "it holds no answer with routed_experts: was return_routed_experts set?")
	case rows == 0:
		return nil, first.damaged(place{}, "no token was routed")
	case len(kept) == 0:
		return nil, first.damaged(place{}, "every row holds nothing but zeros: nothing was captured")
	}
	return kept, nil
}

func allZero(ids []int32) bool {
	for _, id := range ids {
		if id != 0 {
			return false
		}
	}
	return true
}

// routedEmitter turns rows into tokens.
type routedEmitter struct {
	in      *input
	all     layout.Shape
	kept    []int
	emit    emitter
	a       trace.Activation
	missing int64 // tokens without a choice somewhere
}

func (e *routedEmitter) run(form *routedForm) error {
	seq := int64(0)
	err := form.each(func(s *routedSequence) error {
		prompt := s.prompt
		if prompt < 0 && e.in.opts.Prompt > 0 {
			prompt = int64(e.in.opts.Prompt)
		}
		e.a.Seq, e.a.Pos, e.a.Token = seq, s.start, -1
		seq++
		return s.rows(func(at place, ids []int32) error {
			e.a.Phase = trace.PhaseUnknown
			if prompt >= 0 {
				e.a.Phase = trace.Prefill
				if e.a.Pos >= prompt {
					e.a.Phase = trace.Decode
				}
			}
			e.take(ids)
			err := e.emit(s.file, at, &e.a)
			e.a.Pos++
			return err
		})
	})
	if e.missing > 0 {
		e.in.note("%d tokens have layers of nothing but zeros, so their choice was not captured: these rows are empty.", e.missing)
	}
	return err
}

// take copies the ids of the layers with a router.
func (e *routedEmitter) take(ids []int32) {
	e.a.Experts = e.a.Experts[:0]
	missing := false
	for _, l := range e.kept {
		row := ids[l*e.all.TopK : (l+1)*e.all.TopK]
		e.a.Experts = append(e.a.Experts, row...)
		if e.all.TopK > 1 && allZero(row) {
			missing = true
			for i := len(e.a.Experts) - e.all.TopK; i < len(e.a.Experts); i++ {
				e.a.Experts[i] = -1
			}
		}
	}
	if missing {
		e.missing++
	}
}
