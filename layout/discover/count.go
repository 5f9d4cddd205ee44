package discover

import (
	"slices"

	"outrider/layout"
)

// countExperts finds the number of experts of a layer: what the model says, or
// else the most that a block's tensors show.
func (f *finder) countExperts() error {
	f.experts = f.Facts.Experts
	if f.experts > 0 {
		return nil
	}
	for i := range f.layers {
		for _, g := range f.layers[i].groups {
			n, err := f.shown(g)
			if err != nil {
				return err
			}
			f.experts = max(f.experts, n)
		}
	}
	if f.experts == 0 {
		t := f.tensor(f.layers[0].groups[0].members[0])
		return f.fail(ErrExperts, t, "how many experts share tensor %q is unknown: put the model's config.json beside it", t.Name)
	}
	return nil
}

// shown is how many experts a group's tensors show; 0 if they don't.
func (f *finder) shown(g *group) (int, error) {
	if !g.stacked() {
		n := int32(0)
		for _, m := range g.members {
			n = max(n, m.expert+1)
		}
		return int(n), nil
	}
	if g.side > 0 || g.form&flat != 0 {
		return 0, nil
	}
	t := f.tensor(g.members[0])
	if err := f.checkRank(g, t, t.Dims); err != nil {
		return 0, err
	}
	n := t.Dims[len(t.Dims)-1]
	if n > layout.MaxExperts {
		return 0, f.fail(ErrExperts, t, "tensor %q has %s, which would be %d experts, want up to %d", t.Name, f.dims(t.Dims), n, layout.MaxExperts)
	}
	return int(n), nil
}

// dropDense sets blocks aside whose one dense layer is called expert 0, as some
// writers of Jamba do: there, other blocks have more experts, and there is no router.
func (f *finder) dropDense() error {
	if f.experts == 1 || len(f.layers) == 1 {
		return nil
	}
	f.layers = slices.DeleteFunc(f.layers, func(l layerGroups) bool {
		r := f.routers[l.place]
		return (r == nil || len(r.matrix) == 0) && !slices.ContainsFunc(l.groups, func(g *group) bool {
			return len(g.members) != 1 || g.members[0].expert != 0
		})
	})
	if len(f.layers) == 0 {
		return f.none()
	}
	return nil
}
