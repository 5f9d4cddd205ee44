package importer

import (
	"fmt"
	"maps"
	"slices"

	"outrider/layout"
	"outrider/trace"
)

// vllm_moe_trace (github.com/dynos01/vllm_moe_trace, vllm/expert_tracer.py) keeps
// one JSON object in a file and rewrites it after each step:
//
//	{"records":[{"model_name":…,"time":…,"phase":…,"experts":[[[k ids] a token] a gate call]}]}
//
// A record has the gate calls of one pass, an MoE layer each; the first may hold
// those of the engine's warm-up passes too. The oldest version has no phase.
type gateRecords struct {
	in     *input
	file   *file
	model  string
	topK   int
	counts map[int]int64 // records by their number of gate calls
	layers int
	failed error
}

func openVLLMTrace(in *input) (*content, error) {
	g := &gateRecords{in: in, file: in.files[0], counts: map[int]int64{}}
	if g.failed = g.survey(); g.failed != nil && len(g.counts) == 0 {
		return nil, g.failed
	}
	layers, err := g.layerCount()
	if err != nil {
		return nil, err
	}
	shape, err := in.shape(layout.Shape{Layers: layers, TopK: g.topK})
	if err != nil {
		return nil, err
	}
	g.layers = layers
	h := trace.Header{Model: g.model, Shape: shape, Source: in.sourceText("vllm-moe-trace"), IDs: trace.IDsLogical, Ranked: trace.Yes, Sequences: trace.No}
	return &content{header: h, emit: func(out emitter) error { return g.emit(newPass(h, ordinals(countTo(layers)), out)) }}, nil
}

// layerCount is the number of gate calls of a pass: what the caller says, or
// what all records agree in.
func (g *gateRecords) layerCount() (int, error) {
	switch {
	case g.in.opts.Layers > 0:
		return g.in.opts.Layers, nil
	case len(g.counts) == 0:
		return 0, g.file.damaged(place{}, "it holds no record")
	case len(g.counts) == 1:
		for n := range g.counts {
			return n, nil
		}
	}
	numbers := slices.Sorted(maps.Keys(g.counts))
	return 0, fmt.Errorf("%s: %w: records have %d to %d gate calls, and some may be of several passes: give --layers (the model's MoE layers)",
		g.file.path, ErrNeedShape, numbers[0], numbers[len(numbers)-1])
}

// eachRecord steps through the records: take must take the value of each key,
// done is called at the end of each record.
func (g *gateRecords) eachRecord(take func(j *jsonStream, key string) error, done func(j *jsonStream) error) error {
	return g.file.eachJSON("the records", func(j *jsonStream) error {
		return j.fields(func(key string) error {
			if key != "records" {
				return j.skip()
			}
			return j.elements(func(int) error {
				if err := j.fields(func(key string) error { return take(j, key) }); err != nil {
					return err
				}
				return done(j)
			})
		})
	})
}

// survey counts gate calls.
func (g *gateRecords) survey() error {
	calls := 0
	var rows idRows
	return g.eachRecord(func(j *jsonStream, key string) error {
		switch key {
		case "model_name":
			return j.value(&g.model)
		case "experts":
			calls = 0
			return j.elements(func(int) error {
				calls++
				if err := j.value(&rows); err != nil {
					return err
				}
				if g.topK == 0 {
					g.topK = rows.width
				}
				return nil
			})
		}
		return j.skip()
	}, func(*jsonStream) error {
		if calls > 0 && len(g.counts) < layout.MaxLayers {
			g.counts[calls]++
		}
		calls = 0
		return nil
	})
}

// emit tells the tokens pass by pass.
func (g *gateRecords) emit(p *pass) error {
	var (
		rows   idRows
		calls  int // of the record
		pos    int64
		phase  trace.Phase
		joined int64 // passes in records with several
	)
	finish := func(j *jsonStream, phase trace.Phase) error {
		for i := range p.keys {
			p.keys[i].phase = phase
		}
		pos += int64(len(p.keys))
		return p.finish(g.file, j.at())
	}
	err := g.eachRecord(func(j *jsonStream, key string) error {
		switch key {
		case "phase":
			var word string
			err := j.value(&word)
			phase = phaseOf(word)
			return err
		case "experts":
			return j.elements(func(int) error {
				if err := j.value(&rows); err != nil {
					return err
				}
				if calls > 0 && calls%g.layers == 0 {
					// Of these passes the record's phase is not told.
					joined++
					if err := finish(j, trace.PhaseUnknown); err != nil {
						return err
					}
				}
				for i := range rows.rows {
					if err := p.row(calls%g.layers, tokenKey{pos: pos + int64(i), token: -1}, rows.row(i), nil); err != nil {
						return j.damaged("gate call %d of the record, token %d: %v", calls, i, err)
					}
				}
				calls++
				return nil
			})
		}
		return j.skip()
	}, func(j *jsonStream) error {
		if calls%g.layers != 0 {
			return j.damaged("ragged: the record has %d gate calls, want a pass's %d or several times that", calls, g.layers)
		}
		err := finish(j, phase)
		calls, phase = 0, trace.PhaseUnknown
		return err
	})
	if joined > 0 {
		g.in.note("%d passes shared a record with one that came after them (warm-up is recorded so); their phase is not told.", joined)
	}
	return p.broken(g.file, err)
}

// phaseOf is the phase that a word names for sure.
func phaseOf(word string) trace.Phase {
	switch word {
	case "prefill":
		return trace.Prefill
	case "decode":
		return trace.Decode
	}
	return trace.PhaseUnknown
}
