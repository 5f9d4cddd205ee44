package importer

import (
	"fmt"

	"outrider/trace"
)

// maxPassTokens is the most tokens of one pass or sequence whose layers lie apart.
const maxPassTokens = 1 << 22

// tokenKey is what a row tells of its token beside the choice.
type tokenKey struct {
	seq, pos int64
	token    int32
	phase    trace.Phase
}

// pass gathers the rows of one pass or sequence, in whatever order of layers and
// tokens, and tells its tokens. In each layer they must come in the same order.
//
//	rows:  layer 1: a b c   layer 2: a b c   …   tokens: a (all layers), b, c
type pass struct {
	*block
	check   *rowCheck
	header  trace.Header
	index   map[int]int // ordinals of the layers' numbers
	keys    []tokenKey  // of each token
	out     emitter
	refused bool // out took no more
	a       trace.Activation
}

// newPass makes an empty pass of a trace with header h.
func newPass(h trace.Header, index map[int]int, out emitter) *pass {
	return &pass{
		block:  newBlock(h.Shape, h.Weights),
		check:  newRowCheck(h.Shape.Experts, h.Shape.TopK),
		header: h, index: index, out: out,
	}
}

// row adds the choice of a layer, given by its own number, for a token.
func (p *pass) row(layer int, k tokenKey, ids []int32, weights []float32) error {
	l, ok := p.index[layer]
	if !ok {
		return fmt.Errorf("layer %d is none of the %d layers before", layer, len(p.index))
	}
	if err := p.check.check(ids); err != nil {
		return fmt.Errorf("layer %d: %w", layer, err)
	}
	switch n := p.rows(l); {
	case n == maxPassTokens:
		return fmt.Errorf("the layers lie apart over more than %d tokens, which is as much as is held: split the file", maxPassTokens)
	case n == len(p.keys):
		p.keys = append(p.keys, k)
	case p.keys[n] != k:
		return fmt.Errorf("layer %d: row %d of the pass is of %v, but in the layers before it is of %v", layer, n, k, p.keys[n])
	}
	if !p.header.Weights {
		weights = nil
	}
	return p.add(l, ids, weights)
}

// String names the token in messages.
func (k tokenKey) String() string {
	return fmt.Sprintf("position %d (%s) of sequence %d", k.pos, k.phase, k.seq)
}

// holds reports whether there is anything to tell.
func (p *pass) holds() bool { return len(p.keys) > 0 }

// finish tells all tokens and empties the pass. If layers lack rows it tells the
// tokens that all layers have, and then what is missing.
func (p *pass) finish(f *file, at place) error {
	short, long := p.extremes()
	err := p.tell(f, at, p.rows(short))
	if err == nil && short != long {
		err = f.damaged(at, "ragged: layer %d has %d rows of the pass, but layer %d has %d",
			p.number(short), p.rows(short), p.number(long), p.rows(long))
	}
	p.empty()
	return err
}

// broken is for an error in the middle of a pass: the tokens that all layers
// have are told, and the error is passed on.
func (p *pass) broken(f *file, err error) error {
	if err == nil || p.refused {
		return err
	}
	short, _ := p.extremes()
	if told := p.tell(f, place{}, p.rows(short)); told != nil {
		return told
	}
	p.empty()
	return err
}

// extremes are the layers with fewest and most rows.
func (p *pass) extremes() (short, long int) {
	for l := range p.ids {
		if p.rows(l) < p.rows(short) {
			short = l
		}
		if p.rows(l) > p.rows(long) {
			long = l
		}
	}
	return short, long
}

func (p *pass) number(layer int) int { return p.header.Shape.LayerID(layer) }

// tell emits the first n tokens.
func (p *pass) tell(f *file, at place, n int) error {
	for i, k := range p.keys[:n] {
		p.a.Seq, p.a.Pos, p.a.Token, p.a.Phase = k.seq, k.pos, k.token, k.phase
		p.token(i, &p.a)
		if err := p.out(f, at, &p.a); err != nil {
			p.refused = true
			return err
		}
	}
	return nil
}

func (p *pass) empty() {
	p.reset()
	p.keys = p.keys[:0]
}
