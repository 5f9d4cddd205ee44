package importer

import (
	"errors"
	"fmt"

	"outrider/trace"
)

// passes puts forward passes together from rows that come layer by layer, and
// emits their tokens. All tokens are counted as one sequence, in the order they
// were routed: the forms do not tell sequences apart.
type passes struct {
	in      *input
	f       *file
	form    *passForm
	header  trace.Header
	ids     []int       // block number of each layer
	ordinal map[int]int // its inverse
	emit    emitter
	phase   func(tokens int) trace.Phase

	block *block
	open  bool  // a pass has begun
	start place // where
	pass  int64
	run   layerRun

	token   trace.Activation
	emitted int64
	lone    int64 // passes of the last layer only
	lastRow int64 // passes whose last layer has one row only
	misread misread
}

// layerRun is what the layer at hand chose so far in the pass.
type layerRun struct {
	layer   int // ordinal
	at      place
	ids     []int32
	weights []float32
}

func newPasses(in *input, form *passForm, h trace.Header, ids []int) *passes {
	p := &passes{
		in: in, f: in.files[0], form: form, header: h, ids: ids, ordinal: map[int]int{},
		block: newBlock(h.Shape, h.Weights), phase: func(int) trace.Phase { return trace.PhaseUnknown },
		misread: misread{experts: h.Shape.Experts, topK: h.Shape.TopK},
	}
	for l, id := range ids {
		p.ordinal[id] = l
	}
	if form.phase != nil {
		p.phase = form.phase
	}
	return p
}

// read emits all tokens of the file.
func (p *passes) read() error {
	if err := p.form.each(p.add); err != nil {
		return err
	}
	if err := p.endPass(true); err != nil {
		return err
	}
	p.notes()
	if p.emitted == 0 && p.misread.passes > 0 {
		return fmt.Errorf("%s: %w: all passes hold lists of all experts instead of choices, %s", p.f.path, ErrLossy, p.form.lists)
	}
	return nil
}

func (p *passes) add(r *layerRows) error {
	layer, known := p.ordinal[r.layer]
	if !known {
		return p.f.damaged(r.at, "the file changed while it was read: block %d is new", r.layer)
	}
	again := layer == p.run.layer && p.form.whole
	if p.open && (r.pass != p.pass || layer < p.run.layer || again) {
		if err := p.endPass(false); err != nil {
			return err
		}
	}
	if !p.open {
		p.open, p.start, p.pass = true, r.at, r.pass
		p.startRun(layer, r.at)
	}
	if layer != p.run.layer {
		if err := p.endRun(); err != nil {
			return err
		}
		p.startRun(layer, r.at)
	}
	if len(p.run.ids)+len(r.ids) > MaxHeld {
		return p.f.damaged(r.at, "block %d chose more than %d experts in one pass: split the file", r.layer, MaxHeld)
	}
	if i := outside(r.ids, p.header.Shape.Experts); i >= 0 {
		return p.f.damaged(r.at, "expert id %d is outside 0 to %d", r.ids[i], p.header.Shape.Experts-1)
	}
	p.run.ids = append(p.run.ids, r.ids...)
	if p.header.Weights {
		p.run.weights = append(p.run.weights, r.weights...)
	}
	return nil
}

func (p *passes) startRun(layer int, at place) {
	p.run = layerRun{layer, at, p.run.ids[:0], p.run.weights[:0]}
}

// endRun cuts what a layer chose into the rows of its tokens.
func (p *passes) endRun() error {
	k, layer, ids := p.header.Shape.TopK, p.run.layer, p.run.ids
	if len(ids)%k != 0 {
		return p.f.damaged(p.run.at, "block %d chose %d experts in one pass, not a multiple of top-k %d", p.ids[layer], len(ids), k)
	}
	rows, want := len(ids)/k, p.block.rows(0)
	if layer > 0 && layer == len(p.ids)-1 && rows == 1 && want > 1 {
		// llama.cpp drops the rows whose output nobody asked for before the last
		// layer's experts; what is left is the last token's.
		p.lastRow++
		for range want - 1 {
			if err := p.block.add(layer, nil, nil); err != nil {
				return p.f.damaged(p.run.at, "%v", err)
			}
		}
		rows = want
	}
	if layer > 0 && want > 0 && rows != want {
		return p.f.damaged(p.run.at, "block %d has rows of %d tokens, but block %d of %d in the same pass: ragged", p.ids[layer], rows, p.ids[0], want)
	}
	for i := 0; i < len(ids); i += k {
		var weights []float32
		if p.header.Weights {
			weights = p.run.weights[i : i+k]
		}
		if err := p.block.add(layer, ids[i:i+k], weights); err != nil {
			return p.f.damaged(p.run.at, "%v", err)
		}
	}
	return nil
}

// endPass emits the tokens of the pass.
func (p *passes) endPass(atEnd bool) error {
	if !p.open {
		return nil
	}
	if err := p.endRun(); err != nil {
		return err
	}
	p.open = false
	defer p.block.reset()
	for l := range p.ids {
		if p.block.rows(l) == 0 {
			return p.partial(l, atEnd)
		}
	}
	if p.form.lists != "" && p.misread.pass(p.block) {
		return nil
	}
	tokens := p.block.rows(0)
	phase := p.phase(tokens)
	for i := range tokens {
		p.block.token(i, &p.token)
		p.token.Pos, p.token.Token, p.token.Phase = p.emitted, -1, phase
		if prompt := int64(p.in.opts.Prompt); prompt > 0 {
			p.token.Phase = trace.Decode
			if p.emitted < prompt {
				p.token.Phase = trace.Prefill
			}
		}
		if err := p.emit(p.f, p.start, &p.token); err != nil {
			return err
		}
		p.emitted++
	}
	return nil
}

// partial deals with a pass that lacks layers, of which missing is the first. A
// recorder that sees only rows of single tokens sees of a prompt just the last
// layer, where the rows of the other tokens were dropped.
func (p *passes) partial(missing int, atEnd bool) error {
	last := len(p.ids) - 1
	if p.form.lone && p.run.layer == last && p.block.rows(last) == 1 && p.block.held == p.header.Shape.TopK {
		p.lone++
		return nil
	}
	if atEnd && p.run.layer < missing {
		return p.f.damaged(p.run.at, "the file ends inside the pass that begins at %v: it has no rows of block %d", p.start, p.ids[missing])
	}
	return p.f.damaged(p.start, "the pass that begins here has no rows of block %d", p.ids[missing])
}

func (p *passes) notes() {
	if p.lone > 0 {
		p.in.note("%d passes hold nothing but the last layer's choice for the last token of a prompt: they were left out.", p.lone)
	}
	if p.lastRow > 0 {
		p.in.note("In %d passes the last layer has one row only, the last token's, because llama.cpp drops rows whose output is not wanted: the other tokens' last row is empty.", p.lastRow)
	}
	if p.misread.passes > 0 {
		p.in.note("%d passes (%d rows) were left out: they hold lists of all experts instead of choices, %s.", p.misread.passes, p.misread.tokens, p.form.lists)
	}
}

// outside is the index of the first id that no expert has, or -1.
func outside(ids []int32, experts int) int {
	for i, id := range ids {
		if id < 0 || int(id) >= experts {
			return i
		}
	}
	return -1
}

// distinct is an error if a row names an expert twice. Rows of k ids are flat in
// ids. Rows longer than those of any model at hand are left to the checker, which
// knows no line but needs no square of the length.
func distinct(ids []int32, k int) error {
	if k < 1 {
		return errors.New("a row has no ids")
	}
	if k > 64 {
		return nil
	}
	for i := range ids {
		for _, other := range ids[i/k*k : i] {
			if ids[i] == other {
				return fmt.Errorf("expert id %d is named twice in a row", ids[i])
			}
		}
	}
	return nil
}
