package importer

import (
	"fmt"

	"outrider/trace"
	"outrider/trace/importer/internal/torchfile"
)

// passEmitter emits the tokens of a per_token dump.
type passEmitter struct {
	d      *sglangDump
	m      *expertMap
	header trace.Header
	kept   []int
	layers int
	links  *passLinks // nil where sequences are not told
	emit   emitter
	a      trace.Activation
}

func (e *passEmitter) run(passes []*torchfile.Dict) error {
	for i, record := range passes {
		p, err := e.d.pass(record)
		if err == nil && p.layers != e.layers {
			err = e.d.wrong("the file changed while it was read")
		}
		if err == nil {
			err = e.pass(int64(i), p)
		}
		if err != nil {
			return fmt.Errorf("pass %d: %w", i, err)
		}
	}
	return nil
}

func (e *passEmitter) pass(number int64, p *sglangPass) error {
	var owners []int64
	if e.links != nil {
		owners = e.links.pass(p)
	}
	for i, token := range p.tokens {
		e.a.Seq, e.a.Pos, e.a.Phase, e.a.Token = number, int64(i), p.phase, -1
		if owners != nil {
			e.a.Seq, e.a.Pos = owners[i], p.positions[i]
		}
		if token >= 0 && int64(int32(token)) == token {
			e.a.Token = int32(token)
		}
		if err := e.rows(p, i); err != nil {
			return err
		}
		if err := e.emit(e.d.file, place{}, &e.a); err != nil {
			return err
		}
	}
	return nil
}

// rows takes the choices of a token.
func (e *passEmitter) rows(p *sglangPass, token int) error {
	topK := e.header.Shape.TopK
	e.a.Experts = e.a.Experts[:0]
	for _, l := range e.kept {
		row := p.row(l, token)
		if len(row) > topK {
			return e.d.wrong("the file changed while it was read")
		}
		for _, slot := range row {
			if slot < 0 || (e.m.there && slot >= int64(e.m.slots)) || slot >= 1<<31 {
				return e.d.wrong("layer %d, token %d: id %d is outside the slots", l, token, slot)
			}
			e.a.Experts = append(e.a.Experts, e.m.expert(l, int32(slot)))
		}
		for range topK - len(row) {
			e.a.Experts = append(e.a.Experts, -1)
		}
	}
	return nil
}
