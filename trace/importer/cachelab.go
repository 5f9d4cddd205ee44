package importer

import (
	"encoding/json"
	"fmt"
	"math"

	"outrider/layout"
	"outrider/trace"
)

// labFormat is the name that moe-cache-lab's traces
// (github.com/birkansit/moe-cache-lab, TRACE_FORMAT.md) give themselves.
const labFormat = "moe-cache-lab.routing-jsonl"

func sniffCacheLab(p *peek) bool {
	line, whole := p.line()
	if !whole {
		return has(p.keys(), "record_type", "format", "format_version", "model_id")
	}
	var m labLine
	return json.Unmarshal(line, &m) == nil && m.Format == labFormat
}

// labLine is a line of version 1 or 2: metadata first, then a routing selection of
// one layer and token each. Version 2 tells encoder from decoder.
type labLine struct {
	Record  string     `json:"record_type"`
	Format  string     `json:"format"`
	Version int        `json:"format_version"`
	Model   string     `json:"model_id"`
	Experts *int       `json:"num_experts"`
	TopK    *int       `json:"experts_per_token"`
	Stages  []labStage `json:"routing_stages"`

	Stage   string    `json:"routing_stage"`
	Phase   string    `json:"phase"`
	Pos     int64     `json:"token_position"`
	Layer   int       `json:"layer"`
	Token   *int64    `json:"token_id"`
	State   string    `json:"assignment_state"`
	IDs     []int32   `json:"selected_experts"`
	Weights []float32 `json:"selected_probabilities"`
}

// labStage is the shape of one stage, in version 2.
type labStage struct {
	Name    string `json:"routing_stage"`
	Experts int    `json:"num_experts"`
	TopK    int    `json:"assigned_experts_per_token"`
}

// labTrace is what the first reading tells. Each file is a sequence of its own.
type labTrace struct {
	survey
	in     *input
	begun  bool
	meta   labLine
	shape  layout.Shape // as far as the metadata tells
	stage  string       // the one that is read, in version 2
	passed int64        // rows of the other
	tokens bool         // some row has a token id
	uneven bool         // rows differ in width
}

func openCacheLab(in *input) (*content, error) {
	t, before := &labTrace{in: in}, labLine{}
	err := t.eachRow(func(f *file, at place, l *labLine) error {
		if l.Stage != t.stage {
			t.passed++
			return nil
		}
		if t.rows == 0 || l.generated() != before.generated() || (l.generated() && l.Pos != before.Pos) {
			t.groups++
		}
		before, t.tokens = *l, t.tokens || l.Token != nil
		t.uneven = t.uneven || (t.width > 0 && len(l.IDs) > 0 && len(l.IDs) != t.width)
		if err := t.row(l.Layer, len(l.IDs), l.Weights); err != nil {
			return f.damaged(at, "%v", err)
		}
		return nil
	})
	told := t.shape
	if t.uneven && told.TopK == 0 {
		if told.TopK = in.opts.TopK; told.TopK == 0 {
			return nil, fmt.Errorf("%s: %w: rows have different numbers of experts: give --top-k, the most there are", in.files[0].path, ErrNeedShape)
		}
	}
	h, index, err := t.header(in, "moe-cache-lab", told, err)
	if err != nil {
		return nil, err
	}
	h.Model, h.IDs, h.Sequences, h.Tokens = t.meta.Model, trace.IDsLogical, trace.Yes, t.tokens
	if t.passed > 0 {
		in.note("%d rows of the encoder were left out: its layers are others than the decoder's. To import them, keep only the lines of that stage.", t.passed)
	}
	return &content{header: h, emit: func(out emitter) error {
		p := newPass(h, index, out)
		p.check.loose = true
		return t.emit(p)
	}}, nil
}

// emit tells the prompt, whose layers lie apart, and then the generated tokens
// one by one.
func (t *labTrace) emit(p *pass) error {
	var (
		now    *file
		seq    = int64(-1)
		before labLine // the row before; of its slices nothing is kept
		lastAt place
		floor  int64 // the least position that may come
	)
	err := t.eachRow(func(f *file, at place, l *labLine) error {
		if l.Stage != t.stage {
			return nil
		}
		if f != now || l.generated() != before.generated() || (l.generated() && l.Pos != before.Pos) {
			if p.holds() {
				floor = p.keys[len(p.keys)-1].pos + 1
				if err := p.finish(now, lastAt); err != nil {
					return err
				}
			}
			if f != now {
				now, floor, before = f, 0, labLine{}
				seq++
			}
		}
		switch {
		case before.generated() && !l.generated():
			return f.damaged(at, "a row of the prompt comes after generated ones")
		case l.Pos < floor || (p.holds() && !l.generated() && l.Layer == before.Layer && l.Pos <= before.Pos):
			return f.damaged(at, "position %d of layer %d comes again, or late: after %d", l.Pos, l.Layer, max(before.Pos, floor-1))
		}
		k := tokenKey{seq: seq, pos: l.Pos, token: -1, phase: trace.Prefill}
		if l.generated() {
			k.phase = trace.Decode
		}
		if l.Token != nil {
			k.token = int32(*l.Token)
		}
		if err := p.row(l.Layer, k, l.IDs, l.Weights); err != nil {
			return f.damaged(at, "%v", err)
		}
		before, lastAt = *l, at
		return nil
	})
	if err == nil && p.holds() {
		return p.finish(now, lastAt)
	}
	return p.broken(now, err)
}

func (l *labLine) generated() bool { return l.Phase == "generated" || l.Phase == "decoder_generated" }

// eachRow calls fn with each selection of all files, which is valid until it
// returns.
func (t *labTrace) eachRow(fn func(f *file, at place, l *labLine) error) error {
	for _, f := range t.in.files {
		var l labLine
		first := true
		err := f.eachLine(func(at place, line []byte) error {
			l = labLine{Layer: -1, Pos: -1, IDs: l.IDs[:0], Weights: l.Weights[:0]}
			if err := json.Unmarshal(line, &l); err != nil {
				return f.damaged(at, "the line is no record: %v", err)
			}
			if first {
				first = false
				return t.begin(f, at, &l)
			}
			if err := t.checkRow(&l); err != nil {
				return f.damaged(at, "%v", err)
			}
			return fn(f, at, &l)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// begin takes the metadata. All files must be of one model.
func (t *labTrace) begin(f *file, at place, l *labLine) error {
	switch {
	case l.Record != "metadata" || l.Format != labFormat:
		return f.damaged(at, "the first record is no metadata of format %q", labFormat)
	case l.Version != 1 && l.Version != 2:
		return f.damaged(at, "format_version is %d; 1 and 2 are read", l.Version)
	case l.Version == 2 && len(l.Stages) == 0:
		return f.damaged(at, "the metadata has no routing_stages")
	}
	var s layout.Shape
	stage := ""
	if l.Version == 2 {
		last := l.Stages[len(l.Stages)-1] // the decoder, if there are both
		stage, s.Experts, s.TopK = last.Name, last.Experts, last.TopK
	} else {
		if l.Experts != nil {
			s.Experts = *l.Experts
		}
		if l.TopK != nil {
			s.TopK = *l.TopK
		}
	}
	if !t.begun {
		t.begun, t.meta, t.shape, t.stage = true, *l, s, stage
		return nil
	}
	if l.Model != t.meta.Model || l.Version != t.meta.Version || stage != t.stage || s.Experts != t.shape.Experts || s.TopK != t.shape.TopK {
		return f.damaged(at, "it is of model %.60q (version %d, %d experts, top-k %d), but the file before of %.60q (version %d, %d experts, top-k %d)",
			l.Model, l.Version, s.Experts, s.TopK, t.meta.Model, t.meta.Version, t.shape.Experts, t.shape.TopK)
	}
	return nil
}

// checkRow says what is wrong with a selection.
func (t *labTrace) checkRow(l *labLine) error {
	unassigned := l.State == "unassigned"
	switch {
	case l.Record != "routing_selection":
		return fmt.Errorf("record_type is %.40q, want \"routing_selection\"", l.Record)
	case !l.staged(t.meta.Version):
		return fmt.Errorf("phase %.40q of routing_stage %.40q is none of version %d", l.Phase, l.Stage, t.meta.Version)
	case l.Pos < 0 || l.Layer < 0:
		return fmt.Errorf("the record needs a token_position and a layer of 0 or more")
	case l.Token != nil && (*l.Token < 0 || *l.Token > math.MaxInt32):
		return fmt.Errorf("token_id is %d, want 0 to %d", *l.Token, math.MaxInt32)
	case len(l.Weights) > 0 && len(l.Weights) != len(l.IDs):
		return fmt.Errorf("the record has %d probabilities for %d experts", len(l.Weights), len(l.IDs))
	case t.shape.TopK > 0 && l.Stage == t.stage && !unassigned && len(l.IDs) != t.shape.TopK:
		return fmt.Errorf("the record has %d experts, but the metadata says %d", len(l.IDs), t.shape.TopK)
	case unassigned != (len(l.IDs) == 0):
		return fmt.Errorf("the record has %d experts and is %q: only one that is \"unassigned\" has none", len(l.IDs), l.State)
	}
	return nil
}

// staged reports whether phase and stage are a pair of this version.
func (l *labLine) staged(version int) bool {
	switch l.Phase {
	case "prompt", "generated":
		return version == 1 && l.Stage == ""
	case "source":
		return version == 2 && l.Stage == "encoder"
	case "decoder_prompt", "decoder_generated":
		return version == 2 && l.Stage == "decoder"
	}
	return false
}
