package importer

import (
	"encoding/json"
	"slices"
	"strings"

	"outrider/layout"
	"outrider/trace"
)

// tracerLine is a line of Megatron-LM's RouterTracer
// (megatron/core/transformer/moe/router_trace.py): one layer's choices for all
// tokens of a step on one rank, or of one micro-batch of it.
type tracerLine struct {
	Step   int64  `json:"step"`
	Stage  string `json:"stage"`
	Block  string `json:"block"`
	Head   *int   `json:"mtp_idx"` // of multi-token prediction
	Layer  int    `json:"layer"`
	Tokens int    `json:"num_tokens"`
	TopK   int    `json:"topk"`
	IDs    idRows `json:"top_indices"`
}

// extra reports a line of a multi-token prediction head, whose layers are none
// of the decoder's.
func (l *tracerLine) extra() bool { return l.Head != nil || (l.Block != "" && l.Block != "decoder") }

// isTracerFile reports whether a name is that of a rank's trace. In its folder may
// lie hidden states, logits and router weights as well.
func isTracerFile(name string) bool {
	return strings.HasPrefix(name, "router_trace_rank") && strings.HasSuffix(name, ".jsonl")
}

func sniffMegatron(p *peek) bool {
	return slices.ContainsFunc(p.names, isTracerFile) || has(p.keys(), "step", "layer", "num_tokens", "topk", "top_indices")
}

// onlyTraces leaves out what lies beside traces in a folder of the tracer.
func onlyTraces(in *input) {
	var traces []*file
	for _, f := range in.files {
		if isTracerFile(f.name()) {
			traces = append(traces, f)
		}
	}
	if beside := len(in.files) - len(traces); len(traces) > 0 && beside > 0 {
		in.note("%d files beside the traces were left out.", beside)
		in.files = traces
	}
}

func openMegatron(in *input) (*content, error) {
	onlyTraces(in)
	s, extra := &survey{}, int64(0)
	var failed error
	for _, f := range in.files {
		step := int64(-1)
		failed = eachTracerLine(f, func(at place, l *tracerLine) error {
			if l.extra() {
				extra++
				return nil
			}
			if l.Step != step {
				step = l.Step
				s.groups++
			}
			if err := s.row(l.Layer, l.TopK, nil); err != nil {
				return f.damaged(at, "%v", err)
			}
			return nil
		})
		if failed != nil {
			break
		}
	}
	h, index, err := s.header(in, "megatron", layout.Shape{}, failed)
	if err != nil {
		return nil, err
	}
	h.Weights, h.Ranked, h.IDs, h.Sequences = false, trace.Unknown, trace.IDsLogical, trace.No
	if extra > 0 {
		in.note("%d lines of multi-token prediction heads were left out.", extra)
	}
	if len(in.files) > 1 {
		in.note("The %d files are ranks that ran side by side, each on tokens of its own; here they follow one another.", len(in.files))
	}
	return &content{header: h, emit: func(out emitter) error { return emitMegatron(in, newPass(h, index, out)) }}, nil
}

// emitMegatron tells the tokens file by file, step by step. Micro-batches of a
// step come in the same order in each layer, so a layer's rows of a step join.
func emitMegatron(in *input, p *pass) error {
	for seq, f := range in.files {
		pos, step := int64(0), int64(-1)
		var last place
		var told map[int]int64 // by layer: rows of the step
		err := eachTracerLine(f, func(at place, l *tracerLine) error {
			if l.extra() {
				return nil
			}
			if l.Step != step {
				pos += int64(len(p.keys))
				if err := p.finish(f, last); err != nil {
					return err
				}
				step, told = l.Step, map[int]int64{}
			}
			last = at
			for i := range l.IDs.rows {
				k := tokenKey{seq: int64(seq), pos: pos + told[l.Layer], token: -1}
				if err := p.row(l.Layer, k, l.IDs.row(i), nil); err != nil {
					return f.damaged(at, "token %d: %v", i, err)
				}
				told[l.Layer]++
			}
			return nil
		})
		if err != nil {
			return p.broken(f, err)
		}
		if err := p.finish(f, last); err != nil {
			return err
		}
	}
	return nil
}

// eachTracerLine calls fn with each line, which is valid until it returns.
func eachTracerLine(f *file, fn func(at place, l *tracerLine) error) error {
	var l tracerLine
	return f.eachLine(func(at place, line []byte) error {
		l = tracerLine{Step: -1, Layer: -1, Tokens: -1, IDs: idRows{ids: l.IDs.ids}}
		if err := json.Unmarshal(line, &l); err != nil {
			return f.damaged(at, "the line is no router trace: %v", err)
		}
		switch {
		case l.Stage != "" && l.Stage != "pre_dispatch":
			return f.damaged(at, "the stage is %.40q, want \"pre_dispatch\", before tokens are dropped or moved", l.Stage)
		case l.Step < 0 || l.Layer < 0:
			return f.damaged(at, "the line needs a step and a layer of 0 or more")
		case l.IDs.rows != l.Tokens:
			return f.damaged(at, "layer %d: top_indices has %d rows, but num_tokens is %d", l.Layer, l.IDs.rows, l.Tokens)
		case l.Tokens > 0 && l.IDs.width != l.TopK:
			return f.damaged(at, "layer %d: top_indices has %d ids a row, but topk is %d", l.Layer, l.IDs.width, l.TopK)
		}
		return fn(at, &l)
	})
}
