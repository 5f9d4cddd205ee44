package importer

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"outrider/layout"
	"outrider/trace"
)

// printRow is what one layer chose for one token.
type printRow struct {
	Experts []int32   `json:"selected_experts"`
	Probs   []float32 `json:"selected_probs"`
}

// GPT-OSS-MoE-ExpertFingerprinting writes a sequence an object; files hold one,
// a list, or one a line. In it stands, among much text,
//
//	"router_data": [{"token_97": {"layer_0": {"selected_experts":[…],"selected_probs":[…]}, …}}, …]
//
// with the token's position in prompt and output.
func sniffFingerprint(p *peek) bool {
	for _, keys := range []map[string]bool{p.keys(), p.listKeys()} {
		if keys["router_data"] || has(keys, "row_index", "dataset", "category", "full_text", "generated_only") {
			return true
		}
	}
	return false
}

// listKeys are the keys of the first object of the list that the content is.
func (p *peek) listKeys() map[string]bool {
	text := bytes.TrimLeft(bytes.TrimPrefix(p.head, []byte("\xef\xbb\xbf")), " \t\r\n")
	rest, ok := bytes.CutPrefix(text, []byte("["))
	if !ok {
		return nil
	}
	return (&peek{head: rest}).keys()
}

// fingerprints is what a first reading of the files tells.
type fingerprints struct {
	survey
	prompts []int64 // tokens of each sequence's prompt, 0 where that is not told
	given   int64   // what the caller said for those
}

func openFingerprint(in *input) (*content, error) {
	s := &fingerprints{given: int64(in.opts.Prompt)}
	var err error
	for _, f := range in.files {
		if err = f.eachJSON("a sequence", s.sequence); err != nil {
			break
		}
	}
	h, index, err := s.header(in, "gpt-oss-fingerprint", layout.Shape{}, err)
	if err != nil {
		return nil, err
	}
	h.IDs, h.Sequences = trace.IDsLogical, trace.Yes
	return &content{header: h, emit: func(out emitter) error { return s.emit(in, newPass(h, index, out)) }}, nil
}

// sequence reads one sequence for what it tells of the shape and the prompt.
func (s *fingerprints) sequence(j *jsonStream) error {
	prompt, all, generated := int64(-1), listLength(-1), listLength(-1)
	err := j.fields(func(key string) error {
		switch key {
		case "n_prompt_tokens":
			return j.value(&prompt)
		case "full_text":
			return j.value(&all)
		case "generated_only":
			return j.value(&generated)
		case "router_data":
			return eachPrintToken(j, func(pos int64, layers map[int]printRow) error {
				s.groups++
				for layer, r := range layers {
					if err := s.row(layer, len(r.Experts), r.Probs); err != nil {
						return j.damaged("token_%d: %v", pos, err)
					}
				}
				return nil
			})
		}
		return j.skip()
	})
	if prompt < 0 && all >= generated && generated >= 0 {
		prompt = int64(all - generated)
	}
	if prompt <= 0 {
		prompt = s.given
	}
	s.prompts = append(s.prompts, prompt)
	return err
}

// listLength is how many elements a JSON array has; -1 of anything else.
type listLength int64

// UnmarshalJSON counts.
func (n *listLength) UnmarshalJSON(text []byte) error {
	*n = -1
	dec := json.NewDecoder(bytes.NewReader(text))
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return err
	}
	for *n = 0; dec.More(); *n++ {
		var skipped json.RawMessage
		if err := dec.Decode(&skipped); err != nil {
			return err
		}
	}
	return nil
}

// emit tells the tokens, which lie in the files one by one with all layers.
func (s *fingerprints) emit(in *input, p *pass) error {
	seq, last := -1, int64(-1)
	for _, f := range in.files {
		err := f.eachJSON("a sequence", func(j *jsonStream) error {
			seq, last = seq+1, -1
			return j.fields(func(key string) error {
				if key != "router_data" {
					return j.skip()
				}
				return eachPrintToken(j, func(pos int64, layers map[int]printRow) error {
					if pos <= last {
						return j.damaged("token_%d comes after token_%d", pos, last)
					}
					last = pos
					k := tokenKey{seq: int64(seq), pos: pos, token: -1, phase: s.phase(seq, pos)}
					for layer, r := range layers {
						if err := p.row(layer, k, r.Experts, r.Probs); err != nil {
							return j.damaged("token_%d: %v", pos, err)
						}
					}
					return p.finish(f, j.at())
				})
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// phase is what the length of the prompt tells of a position.
func (s *fingerprints) phase(seq int, pos int64) trace.Phase {
	switch {
	case seq >= len(s.prompts) || s.prompts[seq] <= 0:
		return trace.PhaseUnknown
	case pos < s.prompts[seq]:
		return trace.Prefill
	}
	return trace.Decode
}

// eachPrintToken calls fn with each token of the list at hand.
func eachPrintToken(j *jsonStream, fn func(pos int64, layers map[int]printRow) error) error {
	return j.elements(func(i int) error {
		var token map[string]map[string]printRow
		if err := j.value(&token); err != nil {
			return err
		}
		if len(token) != 1 {
			return j.damaged("element %d of router_data has %d keys, want one: \"token_<position>\"", i, len(token))
		}
		for name, layers := range token {
			pos, ok := numbered(name, "token_")
			if !ok {
				return j.damaged("%.40q is no \"token_<position>\"", name)
			}
			rows := make(map[int]printRow, len(layers))
			for name, r := range layers {
				layer, ok := numbered(name, "layer_")
				if !ok {
					return j.damaged("token_%d: %.40q is no \"layer_<number>\"", pos, name)
				}
				if len(r.Probs) > 0 && len(r.Probs) != len(r.Experts) {
					return j.damaged("token_%d, %s has %d selected_probs for %d experts", pos, name, len(r.Probs), len(r.Experts))
				}
				rows[int(layer)] = r
			}
			return fn(pos, rows)
		}
		return nil
	})
}

// numbered reads "token_97".
func numbered(name, prefix string) (int64, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	return n, err == nil && n >= 0
}
