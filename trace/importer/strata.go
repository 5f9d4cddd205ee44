package importer

import (
	"encoding/json"
	"slices"
	"strings"

	"outrider/layout"
	"outrider/trace"
)

// stratamoe-lab (github.com/Labeeb2339/stratamoe-lab) writes one JSON object,
// RouterTrace v2, with selections[token][layer][rank]. Which tokens are of one
// prompt stands in another file of the folder: capture-metadata.json as the tool
// writes it, or prompt-spans.json, [[id, first, end], …].
const (
	strataTrace    = "router-trace.v2.json"
	strataMetadata = "capture-metadata.json"
	strataSpans    = "prompt-spans.json"
)

func sniffStrata(p *peek) bool {
	return slices.Contains(p.names, strataTrace) || isStrata(p)
}

func isStrata(p *peek) bool { return has(p.keys(), "expertsPerLayer", "layers", "selections") }

// strata is what a first reading of a trace and its companions tells.
type strata struct {
	Version int `json:"version"`
	Tokens  int `json:"tokens"`
	Layers  int `json:"layers"`
	Experts int `json:"expertsPerLayer"`
	TopK    int `json:"topK"`
	Source  struct {
		Kind  string `json:"kind"`
		Model struct {
			ID string `json:"id"`
		} `json:"model"`
	} `json:"source"`

	file    *file
	ends    []int // of each prompt, ascending; the first begins at 0
	encoder bool
	blocks  []int // numbers of the sparse blocks
	prompt  int64 // tokens of each sequence's prompt, 0 where unknown
}

func openStrata(in *input) (*content, error) {
	s := &strata{}
	if err := s.find(in); err != nil {
		return nil, err
	}
	if err := s.read(); err != nil {
		return nil, err
	}
	shape, err := in.shape(layout.Shape{Layers: s.Layers, Experts: s.Experts, TopK: s.TopK})
	if err != nil {
		return nil, err
	}
	shape.LayerIDs = s.blocks
	h := trace.Header{Model: s.Source.Model.ID, Shape: shape, Source: in.sourceText("stratamoe"), Ranked: trace.Yes, Sequences: trace.FactOf(s.ends != nil)}
	switch s.Source.Kind {
	case "captured":
		h.IDs = trace.IDsLogical
	case "synthetic":
		in.note("The trace says of itself that it is synthetic: no model chose these experts.")
	}
	if s.encoder {
		h.Phase = trace.Prefill
	} else if s.ends != nil {
		s.prompt = int64(in.opts.Prompt)
	}
	return &content{header: h, emit: func(out emitter) error { return s.emit(newPass(h, ordinals(countTo(shape.Layers)), out)) }}, nil
}

// find tells the trace from what lies beside it.
func (s *strata) find(in *input) error {
	for _, f := range in.files {
		var err error
		switch p, peekErr := (&input{files: []*file{f}}).peek(); {
		case peekErr != nil:
			return peekErr
		case isStrata(p):
			if s.file != nil {
				return f.damaged(place{}, "it is a second trace beside %s: name one of them", s.file.name())
			}
			s.file = f
		case f.name() == strataMetadata:
			err = s.metadata(f)
		case f.name() == strataSpans:
			err = s.spans(f)
		default:
			in.note("%s was left out: it is no trace.", f.name())
		}
		if err != nil {
			return err
		}
	}
	if s.file == nil {
		return in.files[0].damaged(place{}, "it is no RouterTrace (an object with expertsPerLayer, layers and selections)")
	}
	return nil
}

// metadata reads the file that the capture tool writes beside its trace.
func (s *strata) metadata(f *file) error {
	text, err := f.whole()
	if err != nil {
		return err
	}
	var m struct {
		Scope  string `json:"scope"`
		Blocks []int  `json:"sparse_encoder_block_indices"`
		Spans  []struct {
			First int `json:"token_start"`
			End   int `json:"token_end_exclusive"`
		} `json:"prompt_spans"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return f.damaged(place{}, "it is no capture metadata: %v", err)
	}
	s.blocks, s.encoder, s.ends = m.Blocks, strings.HasPrefix(m.Scope, "encoder "), nil
	for _, span := range m.Spans {
		if err := s.span(f, span.First, span.End); err != nil {
			return err
		}
	}
	return nil
}

// spans reads [[id, first, end], …].
func (s *strata) spans(f *file) error {
	text, err := f.whole()
	if err != nil {
		return err
	}
	var spans [][3]json.RawMessage
	if err := json.Unmarshal(text, &spans); err != nil {
		return f.damaged(place{}, "it is no list of spans [id, first, end]: %v", err)
	}
	s.ends = nil
	for i, span := range spans {
		var first, end int
		if json.Unmarshal(span[1], &first) != nil || json.Unmarshal(span[2], &end) != nil {
			return f.damaged(place{}, "span %d is no [id, first, end]", i)
		}
		if err := s.span(f, first, end); err != nil {
			return err
		}
	}
	return nil
}

// span adds a prompt's tokens.
func (s *strata) span(f *file, first, end int) error {
	last := 0
	if n := len(s.ends); n > 0 {
		last = s.ends[n-1]
	}
	if first != last || end <= first {
		return f.damaged(place{}, "span %d is of tokens %d to %d, want it to begin at %d, where the one before ends", len(s.ends), first, end, last)
	}
	s.ends = append(s.ends, end)
	return nil
}

// read reads everything but what was chosen, and counts the tokens.
func (s *strata) read() error {
	tokens := 0
	err := s.file.eachJSON("the trace", func(j *jsonStream) error {
		return j.fields(func(key string) error {
			switch key {
			case "version":
				return j.value(&s.Version)
			case "tokens":
				return j.value(&s.Tokens)
			case "layers":
				return j.value(&s.Layers)
			case "expertsPerLayer":
				return j.value(&s.Experts)
			case "topK":
				return j.value(&s.TopK)
			case "source":
				return j.value(&s.Source)
			case "selections":
				n, err := j.count()
				tokens += int(n)
				return err
			}
			return j.skip()
		})
	})
	switch n := len(s.ends); {
	case err != nil:
		return err
	case s.Version != 2:
		return s.file.damaged(place{}, "its version is %d; only RouterTrace 2 is read: StrataMoE itself rewrites version 1 when it imports and exports it", s.Version)
	case tokens != s.Tokens:
		return s.file.damaged(place{}, "it says that it has %d tokens, but there are %d", s.Tokens, tokens)
	case n > 0 && s.ends[n-1] != tokens:
		return s.file.damaged(place{}, "it has %d tokens, but the prompts' spans beside it end at %d", tokens, s.ends[n-1])
	}
	return nil
}

// emit tells the tokens, prompt by prompt if the prompts are known.
func (s *strata) emit(p *pass) error {
	k := tokenKey{token: -1}
	var rows idRows
	return s.file.eachJSON("the trace", func(j *jsonStream) error {
		return j.fields(func(key string) error {
			if key != "selections" {
				return j.skip()
			}
			return j.elements(func(i int) error {
				if err := j.value(&rows); err != nil {
					return err
				}
				if rows.rows != s.Layers {
					return j.damaged("token %d has %d layers, want %d", i, rows.rows, s.Layers)
				}
				k.phase = s.phase(p.header.Phase, k.pos)
				for l := range s.Layers {
					if err := p.row(l, k, rows.row(l), nil); err != nil {
						return j.damaged("token %d: %v", i, err)
					}
				}
				if k.pos++; int(k.seq) < len(s.ends) && i+1 == s.ends[k.seq] {
					k.seq, k.pos = k.seq+1, 0
				}
				return p.finish(s.file, j.at())
			})
		})
	})
}

// phase is that of the whole trace, or what the caller's prompt length tells.
func (s *strata) phase(all trace.Phase, pos int64) trace.Phase {
	switch {
	case s.prompt == 0:
		return all
	case pos < s.prompt:
		return trace.Prefill
	}
	return trace.Decode
}
