package widen

import (
	"slices"

	"outrider/layout/gguf"
)

const (
	embedding = "token_embd.weight"
	output    = "output.weight"
)

// planTensors works out every tensor, in the order of the source.
func (p *Plan) planTensors() error {
	if _, ok := p.file.Tensor(embedding); !ok {
		return refuse("there is no tensor %s", embedding)
	}
	_, separate := p.file.Tensor(output)
	p.Untied = !separate && p.Width > 1
	widths := innerWidths{}
	for _, source := range p.file.Tensors() {
		if err := p.add(source.Name, source, widths); err != nil {
			return err
		}
		if source.Name == embedding && p.Untied {
			if err := p.add(output, source, widths); err != nil {
				return err
			}
		}
	}
	return nil
}

// add plans the tensor of a name from a source, which has another name only for
// an output that was tied.
func (p *Plan) add(name string, source gguf.Tensor, widths innerWidths) error {
	k, ok := parseName(name)
	if !ok {
		return refuse("tensor %s has a role that is not known: whether it grows cannot be said", source.Name)
	}
	t := tensor{name: name, source: source, dims: slices.Clone(source.Dims)}
	columns, columnParts := k.in, k.inParts
	if k.values {
		columns, columnParts = k.out, k.outParts
	}
	var err error
	if t.cols, err = p.axis(source, 0, columns, columnParts); err != nil {
		return err
	}
	t.rows = axis{parts: 1, repeat: 1}
	if !k.values {
		t.shift = log2(t.cols.repeat)
		if t.rows, err = p.axis(source, 1, k.out, k.outParts); err != nil {
			return err
		}
	}
	if t.shift > 0 && divisors[source.Type] == nil {
		return refuse("tensor %s has type %v, whose numbers are not known how to divide", source.Name, source.Type)
	}
	for i, a := range []axis{t.cols, t.rows} {
		if i < len(t.dims) {
			t.dims[i] *= a.repeat
		}
	}
	if err := widths.check(k, t); err != nil {
		return err
	}
	if k.routed && (k.in == inner || k.out == inner) {
		p.ExpertWidth = max(p.ExpertWidth, widths[widthKey{k.block, k.family}]*int64(p.FFN))
	}
	p.tensors = append(p.tensors, t)
	return nil
}

// axis checks that dimension i of a tensor can be the side, and says how it grows.
func (p *Plan) axis(source gguf.Tensor, i int, of side, parts int) (axis, error) {
	parts = max(parts, 1)
	a := axis{parts: parts, repeat: p.factor(of)}
	if of == fixed {
		return a, nil
	}
	size := int64(1)
	if i < len(source.Dims) {
		size = source.Dims[i]
	}
	part := size / int64(parts)
	switch {
	case i >= len(source.Dims), part*int64(parts) != size, part > maxSide, of == stream && part != p.streamWidth:
		return a, refuse("tensor %s has dimensions %v, which do not fit its role and a stream of %d", source.Name, source.Dims, p.streamWidth)
	case i == 0 && part%int64(source.Type.BlockSize()) != 0:
		return a, refuse("tensor %s: parts of %d do not fit %v's blocks of %d", source.Name, part, source.Type, source.Type.BlockSize())
	}
	return a, nil
}

// innerWidths are those of the source, by block and family: a gate or up of
// another width than its down is something that is not known here.
type innerWidths map[widthKey]int64

type widthKey struct {
	block  int
	family string
}

func (w innerWidths) check(k known, t tensor) error {
	dims := t.source.Dims
	var width int64
	switch {
	case k.values && k.out == inner:
		width = dims[0] / int64(t.cols.parts)
	case k.values:
		return nil
	case k.in == inner:
		width = dims[0] / int64(t.cols.parts)
	case k.out == inner:
		width = dims[1] / int64(t.rows.parts)
	default:
		return nil
	}
	key := widthKey{k.block, k.family}
	if have, ok := w[key]; ok && have != width {
		return refuse("tensor %s has an inner width of %d, others of its block have %d", t.source.Name, width, have)
	}
	w[key] = width
	return nil
}
