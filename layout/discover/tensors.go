package discover

import (
	"fmt"
	"slices"

	"outrider/layout"
)

// dims formats dimensions in the order in which the format's users know them.
func (f *finder) dims(d []int64) string {
	if f.Format == "gguf" {
		return fmt.Sprintf("dimensions %v", d)
	}
	d = slices.Clone(d)
	slices.Reverse(d)
	return fmt.Sprintf("shape %v", d)
}

// counting says for a message which dimension counts experts.
func (f *finder) counting() string {
	which := "first"
	if f.Format == "gguf" {
		which = "last"
	}
	return fmt.Sprintf(", the %s %d (experts)", which, f.experts)
}

// rank is how many dimensions a stacked tensor has, the last of which counts
// experts, and whether it may have more.
func (g *group) rank() (n int, more bool) {
	switch {
	case g.form&llama == 0 && g.side > 0:
		return 1, true
	case g.form&flat != 0:
		return 2, true
	case g.side == 0:
		return 3, g.form&llama == 0
	case sides[g.side-1] == "bias":
		return 2, false
	}
	return 1, false
}

// checkRank makes sure that a stacked tensor has the dimensions that its name promises.
func (f *finder) checkRank(g *group, t *Tensor, dims []int64) error {
	n, more := g.rank()
	if len(dims) == n || (more && len(dims) > n) {
		return nil
	}
	end := ""
	if f.experts > 0 {
		end = f.counting()
	}
	return f.fail(ErrExperts, t, "tensor %q has %s, want %d of them%s", t.Name, f.dims(t.Dims), n, end)
}

// stackedTensor is a tensor that holds all experts, one after the other.
func (f *finder) stackedTensor(g *group) (layout.ExpertTensor, error) {
	t := f.tensor(g.members[0])
	dims := slices.Clone(t.Dims)
	for n, _ := g.rank(); g.form&llama != 0 && len(dims) < n; { // writers drop trailing dimensions of 1
		dims = append(dims, 1)
	}
	if err := f.checkRank(g, t, dims); err != nil {
		return layout.ExpertTensor{}, err
	}
	e, last := int64(f.experts), len(dims)-1
	switch {
	case g.form&flat != 0 && len(dims) == 2 && dims[1]%e == 0 && dims[1] > 0:
		dims[1] /= e
	case dims[last] != e:
		n, _ := g.rank()
		return layout.ExpertTensor{}, f.fail(ErrExperts, t, "tensor %q has %s, want %d of them%s", t.Name, f.dims(t.Dims), max(n, len(dims)), f.counting())
	default:
		dims = dims[:last]
	}
	if t.Bytes%e != 0 || t.Bytes == 0 {
		return layout.ExpertTensor{}, f.fail(ErrExperts, t, "tensor %q has %d bytes, which %d experts do not share evenly", t.Name, t.Bytes, e)
	}
	return layout.ExpertTensor{
		Projection: layout.Projection{Type: t.Type, Dims: orOne(dims), Bytes: t.Bytes / e},
		Source:     t.Name, SourceDims: t.Dims, File: t.File, Offset: t.Offset,
	}, nil
}

// orOne gives a single number the dimension that records want.
func orOne(dims []int64) []int64 {
	if len(dims) == 0 {
		return []int64{1}
	}
	return dims
}

// listedTensor joins the tensors of single experts.
func (f *finder) listedTensor(l *layerGroups, g *group) (layout.ExpertTensor, error) {
	members, err := f.ofExperts(l, g)
	if err != nil {
		return layout.ExpertTensor{}, err
	}
	each := make([]layout.Span, len(members))
	first := f.tensor(members[0])
	for e, m := range members {
		t := f.tensor(m)
		if t.Type != first.Type || !slices.Equal(t.Dims, first.Dims) || t.Bytes != first.Bytes {
			return layout.ExpertTensor{}, f.fail(ErrExperts, t, "tensor %q is %s, %s, want %s, %s as %q", t.Name, t.Type, f.dims(t.Dims), first.Type, f.dims(first.Dims), first.Name)
		}
		each[e] = layout.Span{File: t.File, Offset: t.Offset, Bytes: t.Bytes}
	}
	// Not first: from and to are places in the name of the group's first member.
	sample := f.tensor(g.members[0]).Name
	return layout.ExpertTensor{
		Projection: layout.Projection{Type: first.Type, Dims: orOne(slices.Clone(first.Dims)), Bytes: first.Bytes},
		Source:     sample[:g.from] + layout.ExpertMark + sample[g.to:], SourceDims: first.Dims, Each: each,
	}, nil
}

// ofExperts sorts the members of a group by expert and makes sure that each
// expert has one. Those of another kind of experts are set aside.
func (f *finder) ofExperts(l *layerGroups, g *group) ([]member, error) {
	members := slices.Clone(g.members)
	slices.SortFunc(members, func(a, b member) int { return int(a.expert) - int(b.expert) })
	if f.Facts.OtherExperts > 0 {
		for len(members) > f.experts {
			m := members[len(members)-1]
			if m.expert < int32(f.experts) || m.expert >= int32(f.experts+f.Facts.OtherExperts) {
				break
			}
			members = members[:len(members)-1]
			f.resident.add(groupOtherExperts, f.tensor(m).Bytes, 1)
		}
	}
	for i, m := range members {
		t := f.tensor(m)
		switch {
		case int(m.expert) >= f.experts:
			return nil, f.fail(ErrExperts, t, "tensor %q: the model has %d experts a layer", t.Name, f.experts)
		case i > 0 && members[i-1].expert == m.expert:
			return nil, f.fail(ErrExperts, t, "tensors %q and %q are both %s of expert %d", f.tensor(members[i-1]).Name, t.Name, g.label(g.part > 0), m.expert)
		}
	}
	for e := range f.experts {
		if e >= len(members) || int(members[e].expert) != e {
			t := f.tensor(g.members[0])
			return nil, f.fail(ErrExperts, t, "block %d has no %s of expert %d; %d of %d experts are there (one is %q)", l.block, g.label(g.part > 0), e, len(members), f.experts, t.Name)
		}
	}
	return members, nil
}
