package discover

// variety is how a role's weights are stored; layers of one variety have the same side
// tensors.
type variety struct {
	role role
	typ  string
}

// example is a side tensor (or the weights, side 0) that some layer has.
type example struct {
	side  uint8
	layer *layerGroups
}

// compareLayers refuses a layer that lacks what its like have: a gate where
// others have one, a side tensor where others hold weights of the same type with
// it. A writer that dropped one would go unnoticed otherwise. Blocks ahead may differ.
func (f *finder) compareLayers() error {
	examples := map[variety][]example{}
	var gated *layerGroups
	for i := range f.layers {
		l := &f.layers[i]
		if f.isAhead(l.place) {
			continue
		}
		if gated == nil && l.gated() {
			gated = l
		}
		for _, g := range l.groups {
			v := variety{g.role, f.typeOf(l, g.role)}
			if !hasSide(examples[v], g.side) {
				examples[v] = append(examples[v], example{g.side, l})
			}
		}
	}
	for i := range f.layers {
		l := &f.layers[i]
		if f.isAhead(l.place) {
			continue
		}
		if gated != nil && !l.gated() {
			return f.fail(ErrExperts, nil, "block %d has no gate projection, as %q of block %d is one", l.block, f.tensor(gated.groups[0].members[0]).Name, gated.block)
		}
		if err := f.compareLayer(l, examples); err != nil {
			return err
		}
	}
	return nil
}

// compareLayer makes sure that a layer's roles have all side tensors that there
// are examples of.
func (f *finder) compareLayer(l *layerGroups, examples map[variety][]example) error {
	for r := range roles {
		own := l.find(r, 0)
		if own == nil {
			continue
		}
		for _, x := range examples[variety{r, f.typeOf(l, r)}] {
			if l.find(r, x.side) != nil {
				continue
			}
			t, theirs := f.tensor(own.members[0]), x.layer.find(r, x.side)
			return f.fail(ErrExperts, t, "block %d has no %s beside %q, as %q of block %d is one",
				l.block, theirs.label(false), t.Name, f.tensor(theirs.members[0]).Name, x.layer.block)
		}
	}
	return nil
}

func hasSide(list []example, side uint8) bool {
	for i := range list {
		if list[i].side == side {
			return true
		}
	}
	return false
}

// typeOf is the type of a role's weights, "" if a layer has none.
func (f *finder) typeOf(l *layerGroups, r role) string {
	if g := l.find(r, 0); g != nil {
		return f.tensor(g.members[0]).Type
	}
	return ""
}

func (l *layerGroups) gated() bool { return l.find(gate, 0) != nil || l.find(gateUp, 0) != nil }

// find is a layer's first group of a role and side.
func (l *layerGroups) find(r role, side uint8) *group {
	for _, g := range l.groups {
		if g.role == r && g.side == side {
			return g
		}
	}
	return nil
}
