package importer

import (
	"encoding/json"
	"fmt"

	"outrider/layout"
	"outrider/trace"
)

// specRow is one line of speculative-moe (github.com/Mario928/speculative-moe):
// one layer's choice for one decoded token of a problem. The lines run problem by
// problem, in it layer by layer, in that token by token.
type specRow struct {
	Dataset string    `json:"dataset"`
	Problem int64     `json:"problem_id"`
	Layer   int       `json:"layer"`
	Experts []int32   `json:"experts"`
	Probs   []float32 `json:"gating_probs"`
	Token   int64     `json:"token_idx"`
}

func openSpeculative(in *input) (*content, error) {
	s, last := &survey{}, specRow{}
	err := eachSpecRow(in, func(f *file, at place, r *specRow) error {
		if s.rows == 0 || r.Dataset != last.Dataset || r.Problem != last.Problem {
			last = *r
			s.groups++
		}
		if err := s.row(r.Layer, len(r.Experts), r.Probs); err != nil {
			return f.damaged(at, "%v", err)
		}
		return nil
	})
	h, index, err := s.header(in, "speculative-moe", layout.Shape{}, err)
	if err != nil {
		return nil, err
	}
	h.Phase, h.Sequences = trace.Decode, trace.Yes
	return &content{header: h, emit: func(out emitter) error {
		e := &specEmitter{in: in, pass: newPass(h, index, out)}
		return e.run()
	}}, nil
}

// specEmitter tells the tokens problem by problem.
type specEmitter struct {
	in   *input
	pass *pass
	file *file // of the row before
	at   place
	last specRow // the row before; of its slices nothing is kept
	seq  int64

	rows, cut, problems int64 // rows read, rows cut off, problems that lost some
	most                int   // the most that one layer lacks
}

func (e *specEmitter) run() error {
	err := eachSpecRow(e.in, e.row)
	if err == nil && e.pass.holds() {
		err = e.finish()
	} else {
		err = e.pass.broken(e.file, err)
	}
	if e.cut > 0 {
		e.in.note("Layers of %d of %d problems lack up to %d tokens, because the recorder drops a token in the layers where its gates are equal, and numbers the rest anew. "+
			"Where is not told, so each problem was cut to its shortest layer (%d of %d rows left out), and layers may be out of step by up to %d tokens.",
			e.problems, e.seq, e.most, e.cut, e.rows, e.most)
	}
	return err
}

func (e *specEmitter) row(f *file, at place, r *specRow) error {
	same := e.file == f && r.Dataset == e.last.Dataset && r.Problem == e.last.Problem
	if !same && e.pass.holds() {
		if err := e.finish(); err != nil {
			return err
		}
	}
	want := int64(0)
	if same && r.Layer == e.last.Layer {
		want = e.last.Token + 1
	}
	if r.Token != want || (same && r.Layer < e.last.Layer) {
		return f.damaged(at, "layer %d, token_idx %d comes after layer %d, token_idx %d of the problem", r.Layer, r.Token, e.last.Layer, e.last.Token)
	}
	k := tokenKey{seq: e.seq, pos: r.Token, token: -1, phase: trace.Decode}
	if err := e.pass.row(r.Layer, k, r.Experts, r.Probs); err != nil {
		return f.damaged(at, "%v", err)
	}
	e.last, e.file, e.at = *r, f, at
	e.rows++
	return nil
}

// finish tells a problem's tokens, as far as its shortest layer goes. One that
// lacks more than the recorder may have dropped is damage.
func (e *specEmitter) finish() error {
	p := e.pass
	short, long := p.extremes()
	least, most := p.rows(short), p.rows(long)
	if most-least > max(3, most/10) {
		return p.broken(e.file, e.file.damaged(e.at, "ragged: layer %d has %d rows of the problem, but layer %d has %d", p.number(short), least, p.number(long), most))
	}
	if err := p.tell(e.file, e.at, least); err != nil {
		return err
	}
	if most > least {
		for l := range p.ids {
			e.cut += int64(p.rows(l) - least)
		}
		e.problems++
		e.most = max(e.most, most-least)
	}
	p.empty()
	e.seq++
	return nil
}

// eachSpecRow calls fn with each row, which is valid until it returns.
func eachSpecRow(in *input, fn func(f *file, at place, r *specRow) error) error {
	var r specRow
	for _, f := range in.files {
		err := f.eachLine(func(at place, line []byte) error {
			r = specRow{Layer: -1, Problem: -1, Token: -1, Experts: r.Experts[:0], Probs: r.Probs[:0]}
			if err := json.Unmarshal(line, &r); err != nil {
				return f.damaged(at, "the line is no row: %v", err)
			}
			if err := r.check(); err != nil {
				return f.damaged(at, "%v", err)
			}
			return fn(f, at, &r)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *specRow) check() error {
	switch {
	case r.Problem < 0 || r.Token < 0 || r.Layer < 0:
		return fmt.Errorf("the row needs a problem_id, a layer and a token_idx of 0 or more")
	case len(r.Probs) != len(r.Experts):
		return fmt.Errorf("the row has %d gating_probs for %d experts", len(r.Probs), len(r.Experts))
	}
	return nil
}
