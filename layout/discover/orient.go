package discover

import (
	"slices"

	"outrider/layout"
)

// orient finds how the weights of a record are stored: the order of fused rows,
// and which of columns and rows are inputs. Dimensions must fit each other: what
// goes into gate and up comes out of down.
func (f *finder) orient(groups []*group, tensors []layout.ExpertTensor) error {
	var byRole [roles][]int // indexes of the weights, part by part
	for i, g := range groups {
		if g.side > 0 {
			continue
		}
		byRole[g.role] = append(byRole[g.role], i)
		if g.role == gateUp {
			tensors[i].Fused = layout.GateFirst
			if g.form&interleaved != 0 || f.interleaves(g, groups) {
				tensors[i].Fused = layout.Interleaved
			}
		}
		tensors[i].Transposed = g.form&outputsFast != 0
	}
	for part, d := range byRole[down] {
		pair := pair{down: &tensors[d], turned: groups[d].form&downTurned != 0, hidden: int64(f.hidden(groups[d].place()))}
		in := byRole[up]
		if len(byRole[gateUp]) > 0 {
			in, pair.fused = byRole[gateUp], true
		}
		pair.in = &tensors[in[part]]
		if gates := byRole[gate]; len(gates) > 0 {
			pair.gate = &tensors[gates[part]]
		}
		if groups[d].form&outputsFast != 0 {
			continue
		}
		if err := f.orientPair(pair); err != nil {
			return err
		}
	}
	return nil
}

// pair is the weights of one part of a record.
type pair struct {
	in     *layout.ExpertTensor // up or gate_up
	gate   *layout.ExpertTensor // nil if there is none
	down   *layout.ExpertTensor
	fused  bool
	turned bool // down is stored like up
	hidden int64
}

func (f *finder) orientPair(p pair) error {
	if p.gate != nil && p.gate.Type == p.in.Type && !slices.Equal(p.gate.Dims, p.in.Dims) {
		return f.unfit(p.gate, p.in)
	}
	if len(p.in.Dims) != 2 || len(p.down.Dims) != 2 {
		return nil // blocks and the like: rows are outputs
	}
	if !f.counts(p.in.Type) || !f.counts(p.down.Type) {
		p.orientPacked()
		return nil
	}
	in, down := p.in.Dims, p.down.Dims
	rows, columns := in[1], in[0]
	switch {
	case p.turned && !p.fused && slices.Equal(in, down):
		p.down.Transposed = true
	case p.fused && columns == down[1] && half(rows, down[0]):
	case p.fused && rows == down[0] && half(columns, down[1]):
		p.transpose()
	case !p.fused && columns == down[1] && rows == down[0]:
		if columns != p.hidden && rows == p.hidden {
			p.transpose()
		}
	default:
		return f.unfit(p.in, p.down)
	}
	return nil
}

func (p *pair) transpose() {
	p.in.Transposed, p.down.Transposed = true, true
	if p.gate != nil {
		p.gate.Transposed = true
	}
}

// orientPacked judges weights of which several share an element, along the
// inputs: by how many is tried, since formats differ.
func (p *pair) orientPacked() {
	in, down := p.in.Dims, p.down.Dims
	for _, n := range []int64{1, 2, 4, 8, 16} {
		switch {
		case !p.fused:
		case n*in[0] == down[1] && half(in[1], n*down[0]):
			return
		case n*in[1] == down[0] && half(in[0], n*down[1]):
			p.transpose()
			return
		}
	}
	if p.hidden > 0 && down[0] == p.hidden && down[1] != p.hidden {
		p.transpose()
	}
}

func half(whole, part int64) bool { return whole%2 == 0 && whole/2 == part }

// counts reports whether a type's dimensions count weights, not packs of them.
func (f *finder) counts(typ string) bool {
	if f.Format == "gguf" {
		return true
	}
	switch typ {
	case "F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ":
		return true
	}
	return false
}

func (f *finder) unfit(a, b *layout.ExpertTensor) error {
	return f.fail(ErrExperts, nil, "tensors %q and %q do not fit each other: %s and %s", a.Source, b.Source, f.dims(a.SourceDims), f.dims(b.SourceDims))
}

// interleaves: GPT-OSS alternates gate and up. What is not marked by its names
// is told by the architecture, or by a bias on the fused tensor and on the router.
func (f *finder) interleaves(g *group, record []*group) bool {
	switch kind(f.Facts.Architecture) {
	case "gpt-oss", "gptoss":
		return true
	}
	if f.Format == "gguf" || f.Facts.Architecture != "" {
		return false
	}
	r := f.routers[g.place()]
	return r != nil && len(r.bias) > 0 && slices.ContainsFunc(record, func(o *group) bool {
		return o.role == gateUp && o.side == sideOf["bias"]
	})
}
