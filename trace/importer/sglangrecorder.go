package importer

import (
	"fmt"

	"outrider/layout"
	"outrider/trace"
	"outrider/trace/importer/internal/torchfile"
)

// formSGLangRecorder is a dump of SGLang's expert distribution recorder in mode
// per_token: expert_distribution_recorder_<time>_<rank>.pt,
//
//	{"records": [{"forward_pass_id", "rank", "gatherer_key", "input_ids", "positions", "extend_seq_lens", "forward_mode",
//	  "topk_ids_of_layer": int32 [layers, tokens, 8], "misc_objects", "global_physical_count": [layers, slots]}],
//	 "last_physical_to_logical_map": [layers, slots]}
//
// The ids of a row are filled up with -1; layers without a router have nothing else. They
// number slots (physical experts).
const formSGLangRecorder = "sglang-recorder"

func sniffSGLangRecorder(p *peek) bool {
	return isZip(p) && p.mentions("data.pkl", "records", "gatherer_key", "input_ids")
}

func openSGLangRecorder(in *input) (*content, error) {
	d, err := in.files[0].openDump()
	if err != nil {
		return nil, err
	}
	defer d.close.Close() // nothing was written; emit opens the file again
	passes, err := d.records()
	if err != nil {
		return nil, err
	}
	m, err := d.expertMap()
	if err != nil {
		return nil, err
	}
	s := &passSurvey{m: m, links: newPassLinks()}
	if err := s.read(d, passes); err != nil {
		return nil, err
	}
	h, kept, err := s.header(in, d)
	if err != nil {
		return nil, err
	}
	return &content{header: h, emit: func(emit emitter) error {
		d, err := in.files[0].openDump()
		if err != nil {
			return err
		}
		defer d.close.Close() // nothing was written
		passes, err := d.records()
		if err != nil {
			return err
		}
		e := &passEmitter{d: d, m: m, header: h, kept: kept, layers: s.layers, emit: emit}
		if h.Sequences == trace.Yes {
			e.links = newPassLinks()
		}
		return e.run(passes)
	}}, nil
}

// sglangPass is one forward pass.
type sglangPass struct {
	tokens, positions []int64
	extend            []int64 // tokens of each sequence, nil in a pass that extends none
	phase             trace.Phase
	layers, width     int
	ids               []int64 // [layers, tokens, width]
}

// Modes of sglang/srt/model_executor/forward_batch_info.py. They are sure only
// together with what a pass has: EXTEND has lengths, DECODE has none. (Versions before the
// recorder had another first mode, so that their 2 was EXTEND.)
const (
	sglangExtend = 1
	sglangDecode = 2
)

func (d *sglangDump) pass(record *torchfile.Dict) (*sglangPass, error) {
	get := func(key string) any { v, _ := record.Get(key); return v }
	p := &sglangPass{}
	var ok bool
	if p.tokens, ok = intList(get("input_ids")); !ok {
		return nil, d.wrong("input_ids is no list of whole numbers: was the dump made in mode per_token?")
	}
	if p.positions, ok = intList(get("positions")); ok && len(p.positions) != len(p.tokens) {
		return nil, d.wrong("%d positions of %d tokens", len(p.positions), len(p.tokens))
	}
	p.extend, _ = intList(get("extend_seq_lens"))
	switch mode := get("forward_mode"); {
	case mode == int64(sglangExtend) && p.extend != nil:
		p.phase = trace.Prefill
	case mode == int64(sglangDecode) && p.extend == nil:
		p.phase = trace.Decode
	}
	shape, ids, err := d.ints(record, "topk_ids_of_layer", 3)
	if err != nil {
		return nil, err
	}
	if shape[1] != int64(len(p.tokens)) {
		return nil, d.wrong("topk_ids_of_layer has shape %v for %d tokens, want [layers, tokens, ids]", shape, len(p.tokens))
	}
	if shape[0] < 1 || shape[0] > layout.MaxLayers || shape[2] < 1 || shape[0]*shape[2] > trace.MaxIDs {
		return nil, d.wrong("topk_ids_of_layer has shape %v, which no model has", shape)
	}
	p.layers, p.width, p.ids = int(shape[0]), int(shape[2]), ids
	return p, nil
}

// row is the choice of a layer for a token, without the fill.
func (p *sglangPass) row(layer, token int) []int64 {
	at := (layer*len(p.tokens) + token) * p.width
	row := p.ids[at : at+p.width]
	for len(row) > 0 && row[len(row)-1] == -1 {
		row = row[:len(row)-1]
	}
	return row
}

// passSurvey is what the first reading finds.
type passSurvey struct {
	m       *expertMap
	links   *passLinks
	layers  int
	slots   int // of global_physical_count
	topK    int
	routed  []bool
	clashes bool // through the map, a row names an expert twice
	seen    []int
	stamp   int
}

func (s *passSurvey) read(d *sglangDump, passes []*torchfile.Dict) error {
	for i, record := range passes {
		p, err := d.pass(record)
		if err == nil {
			err = s.pass(d, p, record)
		}
		if err != nil {
			return fmt.Errorf("pass %d: %w", i, err)
		}
	}
	return nil
}

func (s *passSurvey) pass(d *sglangDump, p *sglangPass, record *torchfile.Dict) error {
	if s.layers == 0 {
		s.layers, s.routed = p.layers, make([]bool, p.layers)
	}
	if p.layers != s.layers || (s.m.there && s.m.layers != s.layers) {
		return d.wrong("%d layers, but %d before or in last_physical_to_logical_map", p.layers, s.layers)
	}
	if v, _ := record.Get("global_physical_count"); v != nil {
		if t, ok := v.(*torchfile.Tensor); ok && len(t.Shape) == 2 && t.Shape[1] <= layout.MaxExperts {
			s.slots = max(s.slots, int(t.Shape[1]))
		}
	}
	s.links.pass(p)
	if s.m.of != nil && s.seen == nil {
		s.seen = make([]int, s.m.experts)
	}
	for l := range p.layers {
		for i := range p.tokens {
			row := p.row(l, i)
			if len(row) == 0 {
				continue
			}
			s.routed[l] = true
			s.topK = max(s.topK, len(row))
			s.clashes = s.clashes || (s.m.of != nil && s.clash(l, row))
		}
	}
	return nil
}

// clash reports a row whose slots hold an expert twice; what is no slot is left
// to be refused later.
func (s *passSurvey) clash(layer int, row []int64) bool {
	s.stamp++
	for _, slot := range row {
		if slot < 0 || slot >= int64(s.m.slots) {
			continue
		}
		e := s.m.expert(layer, int32(slot))
		if s.seen[e] == s.stamp {
			return true
		}
		s.seen[e] = s.stamp
	}
	return false
}

// header tells the trace, and which layers it has.
func (s *passSurvey) header(in *input, d *sglangDump) (h trace.Header, kept []int, err error) {
	for l, yes := range s.routed {
		if yes {
			kept = append(kept, l)
		}
	}
	if len(kept) == 0 {
		return h, nil, d.wrong("no token was routed")
	}
	experts, ids := s.numbering(in)
	h = trace.Header{IDs: ids, Tokens: true, Sequences: trace.No, Source: in.sourceText(formSGLangRecorder)}
	if h.Shape, err = in.shape(layout.Shape{Layers: s.layers, Experts: experts, TopK: s.topK}); err != nil {
		return h, nil, err
	}
	h.Shape.Layers, h.Shape.LayerIDs = len(kept), in.keptIDs(s.layers, kept)
	if n := s.layers - len(kept); n > 0 {
		in.note("%d of %d layers have no ids: they have no router and were left out.", n, s.layers)
	}
	if s.links.unclear {
		in.note("requests are not named, and positions do not tell whose tokens are whose in every pass: each pass counts as one sequence.")
	} else {
		h.Sequences = trace.Yes
		in.note("requests are not named: sequences were told by positions, which in every pass go on from exactly one place.")
	}
	return h, kept, nil
}

// numbering says how many experts the ids number, and in what way.
func (s *passSurvey) numbering(in *input) (experts int, ids trace.IDs) {
	switch m := s.m; {
	case s.clashes:
		m.of = nil
		in.note("in some passes the slots of one row hold the same expert, so experts were moved during the recording (EPLB) and last_physical_to_logical_map does not fit: ids are those of slots.")
		return m.slots, trace.IDsPhysical
	case m.of != nil:
		in.note("ids of slots were turned into those of the experts that the slots held when the dump was made.")
		return m.experts, trace.IDsLogical
	case m.there:
		return m.slots, trace.IDsLogical
	}
	in.note("the dump has no last_physical_to_logical_map: ids are those of slots (physical).")
	return s.slots, trace.IDsPhysical
}
