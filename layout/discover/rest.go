package discover

import "outrider/layout"

// The groups of tensors that are not laid out, in the order of a checkpoint.
const (
	groupRouters = iota
	groupShared
	groupChunk
	groupAttention
	groupDense
	groupOtherExperts
	groupOtherStacks
	groupAllExperts
	groupEmpty
	groupAhead
	groupOther
	restGroups
)

var restNames = [restGroups]string{
	groupRouters: "routers", groupShared: "shared experts", groupChunk: "chunk experts",
	groupAttention: "attention experts", groupDense: "dense layers named as experts",
	groupOtherExperts: "experts of another kind", groupOtherStacks: "experts of other stacks",
	groupAllExperts: "numbers for all experts", groupEmpty: "empty side tensors",
	groupAhead: "prediction blocks", groupOther: "other",
}

// sums adds up tensors by group.
type sums [restGroups]struct {
	tensors int
	bytes   int64
}

func (s *sums) add(group int, bytes int64, tensors int) {
	s[group].tensors += tensors
	s[group].bytes += bytes
}

var classGroups = map[class]int{
	other: groupOther, router: groupRouters, routerBias: groupRouters, selection: groupRouters,
	hashTable: groupRouters, routerScale: groupRouters, routerOther: groupRouters,
	sharedExpert: groupShared, chunkExpert: groupChunk, attentionExpert: groupAttention,
}

// account tells what all tensors outside of records are, and proves that none
// was lost.
func (f *finder) account(cp *layout.Checkpoint) error {
	for i := range f.asides {
		a := &f.asides[i]
		group := classGroups[a.class]
		if !f.opts.Predict && f.isAhead(a.place) {
			group = groupAhead
		}
		f.resident.add(group, f.Tensors[a.tensor].Bytes, 1)
	}
	laid := make(map[place]bool, len(f.layers))
	for i := range f.layers {
		laid[f.layers[i].place] = true
	}
	for _, g := range f.groups {
		if at := g.place(); !laid[at] {
			f.setAside(g, at)
		}
	}
	var total int64
	for i := range f.resident {
		s := f.resident[i]
		leftOut := i == groupAhead
		if total += s.bytes; !leftOut {
			cp.RestBytes += s.bytes
		}
		if s.tensors > 0 {
			cp.Resident = append(cp.Resident, layout.ResidentGroup{Name: restNames[i], Tensors: s.tensors, Bytes: s.bytes, LeftOut: leftOut})
		}
	}
	for l := range cp.Layers {
		for i := range cp.Layers[l].Tensors {
			total += cp.Layers[l].Tensors[i].Bytes * int64(f.experts)
		}
	}
	var all int64
	for i := range f.Tensors {
		all += f.Tensors[i].Bytes
	}
	if all != total {
		return f.fail(ErrExperts, nil, "experts and all other groups have %d bytes, the tensors %d", total, all)
	}
	return nil
}

// setAside counts the experts of a block that is not laid out.
func (f *finder) setAside(g *group, at place) {
	group := groupOtherStacks
	switch {
	case f.isAhead(at):
		group = groupAhead
	case at.stack == f.main:
		group = groupDense
	}
	for _, m := range g.members {
		f.resident.add(group, f.tensor(m).Bytes, 1)
	}
}
