package discover

import (
	"cmp"
	"slices"
	"strings"

	"outrider/layout"
)

// maxGroups bounds the kinds of tensors that are looked at for one record, of which
// it may hold layout.MaxProjections.
const maxGroups = 2 * layout.MaxProjections

// layer turns a block's groups into the record of its experts.
func (f *finder) layer(l *layerGroups) (layout.CheckpointLayer, error) {
	if n := len(l.groups); n > maxGroups {
		return layout.CheckpointLayer{}, f.fail(ErrExperts, f.tensor(l.groups[0].members[0]), "block %d has %d kinds of expert tensors, want at most %d", l.block, n, maxGroups)
	}
	slices.SortFunc(l.groups, inRecord)
	parts, err := f.checkWhole(l)
	if err != nil {
		return layout.CheckpointLayer{}, err
	}
	var out layout.CheckpointLayer
	var kept []*group
	for _, g := range l.groups {
		if f.keepsAside(l, g) {
			continue
		}
		t, err := f.expertTensor(l, g, parts)
		if err != nil {
			return layout.CheckpointLayer{}, err
		}
		out.Tensors = append(out.Tensors, t)
		kept = append(kept, g)
	}
	return out, f.orient(kept, out.Tensors)
}

// inRecord is the order in which a layer consumes an expert's tensors: what
// comes before the activation function first, weights before side tensors.
func inRecord(a, b *group) int {
	phase := func(g *group) int {
		n := 0
		if g.role == down {
			n += 2
		}
		if g.side > 0 {
			n++
		}
		return n
	}
	return cmp.Or(cmp.Compare(phase(a), phase(b)), cmp.Compare(a.role, b.role), cmp.Compare(a.part, b.part), cmp.Compare(a.side, b.side))
}

// checkWhole makes sure that a record is whole: down, and up or a fused gate_up;
// gate may be absent (some models have none). A side tensor needs its weights,
// and all roles have the same parts. It reports whether there are several.
func (f *finder) checkWhole(l *layerGroups) (parts bool, err error) {
	var weights [roles][]*group
	for _, g := range l.groups {
		if g.side == 0 {
			weights[g.role] = append(weights[g.role], g)
		}
		parts = parts || g.part > 0
	}
	has := func(r role) bool { return len(weights[r]) > 0 }
	first := f.tensor(l.groups[0].members[0])
	switch {
	case !has(down) || !(has(up) || has(gateUp)):
		return parts, f.fail(ErrExperts, first, "block %d has %s (as %q), want down and up, or down and gate_up", l.block, f.labels(l.groups), first.Name)
	case has(gateUp) && (has(gate) || has(up)):
		return parts, f.fail(ErrExperts, first, "block %d has gate_up and also gate or up, as %q and %q", l.block,
			f.tensor(weights[gateUp][0].members[0]).Name, f.tensor(slices.Concat(weights[gate], weights[up])[0].members[0]).Name)
	}
	for _, g := range l.groups {
		if !slices.ContainsFunc(weights[g.role], func(w *group) bool { return w.part == g.part }) {
			t := f.tensor(g.members[0])
			return parts, f.fail(ErrExperts, t, "tensor %q belongs to no record: block %d has no %s projection", t.Name, l.block, g.role)
		}
		if w := weights[down][0]; g.side == 0 && g.stacked() != w.stacked() {
			return parts, f.fail(ErrExperts, f.tensor(g.members[0]), "block %d has %q and %q: all experts in one tensor, and single experts' tensors", l.block, f.tensor(g.members[0]).Name, f.tensor(w.members[0]).Name)
		}
	}
	return parts, f.checkParts(l, weights)
}

// checkParts makes sure that the parts of each role are the first so many.
func (f *finder) checkParts(l *layerGroups, weights [roles][]*group) error {
	want := len(weights[down])
	for r, ws := range weights {
		if len(ws) == 0 {
			continue
		}
		if last := ws[len(ws)-1]; len(ws) != want || last.part != want-1 {
			t := f.tensor(last.members[0])
			return f.fail(ErrExperts, t, "block %d has %d parts of %s, the last of them part %d (%q), and %d of down: get the missing files", l.block, len(ws), role(r), last.part, t.Name, want)
		}
	}
	return nil
}

func (f *finder) labels(groups []*group) string {
	var s []string
	for _, g := range groups {
		s = append(s, g.label(g.part > 0))
	}
	slices.Sort(s)
	return strings.Join(slices.Compact(s), ", ")
}

// keepsAside sets side tensors aside that no single expert has a share of: one
// number for all experts, and tensors without bytes.
func (f *finder) keepsAside(l *layerGroups, g *group) bool {
	if g.side == 0 {
		return false
	}
	if !slices.ContainsFunc(g.members, func(m member) bool { return f.tensor(m).Bytes > 0 }) {
		f.resident.add(groupEmpty, 0, len(g.members))
		return true
	}
	t := f.tensor(g.members[0])
	if g.stacked() && g.form&llama == 0 && f.experts > 1 && !slices.ContainsFunc(t.Dims, func(d int64) bool { return d != 1 }) {
		f.resident.add(groupAllExperts, t.Bytes, 1)
		return true
	}
	return false
}

func (f *finder) expertTensor(l *layerGroups, g *group, parts bool) (layout.ExpertTensor, error) {
	var t layout.ExpertTensor
	var err error
	if g.stacked() {
		t, err = f.stackedTensor(g)
	} else {
		t, err = f.listedTensor(l, g)
	}
	t.Name = g.label(parts)
	return t, err
}
