package discover

import (
	"cmp"
	"slices"
	"strings"

	"outrider/layout"
)

// sideStacks are words in the prefix of a stack that is not the language model.
var sideStacks = set("talker", "code_predictor", "vision_model", "vision_tower", "visual", "vision", "audio_tower", "audio", "speech", "image")

// chooseStack finds the stack of blocks that a forward pass runs.
func (f *finder) chooseStack() error {
	if len(f.groups) == 0 {
		return f.none()
	}
	first := map[int]*group{}
	var mains []int
	for _, g := range f.groups {
		if g.ahead || first[g.stack] != nil {
			continue
		}
		first[g.stack] = g
		if !f.isSide(g.stack) {
			mains = append(mains, g.stack)
		}
	}
	switch len(mains) {
	case 1:
		f.main = mains[0]
		return nil
	case 0:
		return f.fail(ErrNoExperts, f.tensor(f.groups[0].members[0]), "the only experts are those of blocks that predict further tokens, or of images or speech, as %q", f.tensor(f.groups[0].members[0]).Name)
	}
	a, b := f.tensor(first[mains[0]].members[0]), f.tensor(first[mains[1]].members[0])
	return f.fail(ErrExperts, b, "two stacks of blocks have experts, as %q and %q: which of them a pass runs is unknown", a.Name, b.Name)
}

func (f *finder) isSide(stack int) bool {
	return slices.ContainsFunc(strings.Split(f.stacks[stack], "."), func(s string) bool { return sideStacks[s] })
}

// isAhead reports whether a place is a block that predicts further tokens: by
// its name, or by a number beyond the pass's blocks.
func (f *finder) isAhead(at place) bool {
	return at.ahead || (f.Facts.Blocks > 0 && at.stack == f.main && at.block >= f.Facts.Blocks)
}

// chooseLayers takes the groups to be laid out, layer by layer.
func (f *finder) chooseLayers() error {
	byPlace := map[place]int{}
	last := -1
	for _, g := range f.groups {
		at := g.place()
		if !at.ahead && at.stack == f.main {
			last = max(last, at.block)
		}
		if err := f.checkBlock(g); err != nil {
			return err
		}
		if !f.takes(at) {
			continue
		}
		i, ok := byPlace[at]
		if !ok {
			i = len(f.layers)
			byPlace[at] = i
			f.layers = append(f.layers, layerGroups{place: at})
		}
		f.layers[i].groups = append(f.layers[i].groups, g)
	}
	if len(f.layers) == 0 {
		return f.none()
	}
	return f.numberLayers(cmp.Or(f.Facts.Blocks, last+1))
}

// takes reports whether a place's experts are laid out.
func (f *finder) takes(at place) bool {
	if f.isAhead(at) {
		return f.opts.Predict
	}
	return at.stack == f.main
}

// checkBlock makes sure that a block beyond the pass's predicts further tokens.
func (f *finder) checkBlock(g *group) error {
	at := g.place()
	if at.ahead || !f.isAhead(at) || at.block < f.Facts.Blocks+f.Facts.Predict || f.marked[at] {
		return nil
	}
	t := f.tensor(g.members[0])
	return f.fail(ErrExperts, t, "tensor %q lies beyond the model's %d blocks", t.Name, f.Facts.Blocks+f.Facts.Predict)
}

// numberLayers puts the layers in order. Blocks ahead with numbers of their own
// follow the pass's blocks, which end before number end.
func (f *finder) numberLayers(end int) error {
	for i := range f.layers {
		l := &f.layers[i]
		if l.id = l.block; l.ahead {
			l.id += end
		}
	}
	slices.SortStableFunc(f.layers, func(a, b layerGroups) int { return cmp.Compare(a.id, b.id) })
	for i := 1; i < len(f.layers); i++ {
		if a, b := &f.layers[i-1], &f.layers[i]; a.id == b.id {
			return f.fail(ErrExperts, nil, "tensors %q and %q are of two blocks with number %d", f.tensor(a.groups[0].members[0]).Name, f.tensor(b.groups[0].members[0]).Name, a.id)
		}
	}
	return nil
}

// shape is what the layers and facts say together.
func (f *finder) shape() (layout.Shape, error) {
	topK := cmp.Or(f.opts.TopK, f.Facts.TopK)
	if topK == 0 {
		return layout.Shape{}, f.fail(ErrExperts, nil, "how many experts a token uses is unknown: %s", f.Facts.TopKRemedy)
	}
	s := layout.Shape{Layers: len(f.layers), Experts: f.experts, TopK: topK}
	for i := range f.layers {
		s.LayerIDs = append(s.LayerIDs, f.layers[i].id)
	}
	if s.LayerIDs[s.Layers-1] == s.Layers-1 {
		s.LayerIDs = nil
	}
	if err := s.Validate(); err != nil {
		return s, f.fail(ErrExperts, nil, "%v", err)
	}
	return s, nil
}
