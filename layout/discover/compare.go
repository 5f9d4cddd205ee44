package discover

// trait is a side tensor (or the weights, side 0) of a role whose weights have a type.
type trait struct {
	role role
	typ  string
	side uint8
}

// compareLayers refuses a layer that lacks what its like have: a gate where
// others have one, a side tensor where others hold weights of the same type with
// it. A writer that dropped one would go unnoticed otherwise. Blocks ahead may differ.
func (f *finder) compareLayers() error {
	owners := map[trait]*layerGroups{} // the first that has it
	var traits []trait                 // in the order of their owners
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
			t := trait{g.role, f.typeOf(l, g.role), g.side}
			if owners[t] == nil {
				owners[t] = l
				traits = append(traits, t)
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
		for _, t := range traits {
			if f.typeOf(l, t.role) == t.typ && l.find(t.role, t.side) == nil {
				own, other := l.find(t.role, 0), owners[t].find(t.role, t.side)
				return f.fail(ErrExperts, f.tensor(own.members[0]), "block %d has no %s beside %q, as %q of block %d is one",
					l.block, other.label(false), f.tensor(own.members[0]).Name, f.tensor(other.members[0]).Name, owners[t].block)
			}
		}
	}
	return nil
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
