package gguf

import (
	"fmt"

	"outrider/layout"
)

// Gating functions as expert_gating_func numbers them.
var scorings = map[uint64]layout.Scoring{
	1: layout.ScoreSoftmax, 2: layout.ScoreSigmoid, 3: layout.ScoreChosen, 4: layout.ScoreSqrtSoftplus,
}

// routers says where the router matrices lie. A model whose routers cannot be
// read is served all the same, without look-ahead: the text says why.
func (f *File) routers(shape layout.Shape) (*layout.CheckpointRouters, string) {
	r := &layout.CheckpointRouters{RouterRule: layout.RouterRule{Scale: 1}}
	biased := false
	for l := range shape.Layers {
		layer, why := f.router(shape.LayerID(l), shape.Experts, &r.Width)
		if why != "" {
			return nil, why
		}
		biased = biased || layer.Selection.Type != ""
		r.Layers = append(r.Layers, layer)
	}
	if why := f.routerRule(&r.RouterRule, shape, biased); why != "" {
		return nil, why
	}
	return r, ""
}

// router finds the tensors of one block's router. All blocks have one width.
func (f *File) router(block, experts int, width *int) (r layout.CheckpointRouter, why string) {
	name := fmt.Sprintf("blk.%d.ffn_gate_inp.weight", block)
	t, ok := f.Tensor(name)
	switch {
	case !ok:
		return r, fmt.Sprintf("there is no tensor %s", name)
	case len(t.Dims) != 2 || t.Dims[1] != int64(experts) || t.Dims[0] > layout.MaxRouterBytes/4/int64(experts):
		return r, fmt.Sprintf("tensor %s has dimensions %v, want [columns %d]", name, t.Dims, experts)
	case *width != 0 && t.Dims[0] != int64(*width):
		return r, fmt.Sprintf("tensor %s has %d columns, those before it %d", name, t.Dims[0], *width)
	}
	*width = int(t.Dims[0])
	if r.Weight, why = routerTensor(t); why != "" {
		return r, why
	}
	if r.Bias, why = f.routerBias(experts, fmt.Sprintf("blk.%d.ffn_gate_inp.bias", block)); why != "" {
		return r, why
	}
	r.Selection, why = f.routerBias(experts, fmt.Sprintf("blk.%d.exp_probs_b.bias", block), fmt.Sprintf("blk.%d.exp_probs_b", block))
	return r, why
}

// routerBias finds a bias under the first of its names, if the model has one.
func (f *File) routerBias(experts int, names ...string) (layout.RouterTensor, string) {
	for _, name := range names {
		t, ok := f.Tensor(name)
		if !ok {
			continue
		}
		if len(t.Dims) != 1 || t.Dims[0] != int64(experts) {
			return layout.RouterTensor{}, fmt.Sprintf("tensor %s has dimensions %v, want [%d]", name, t.Dims, experts)
		}
		return routerTensor(t)
	}
	return layout.RouterTensor{}, ""
}

func routerTensor(t Tensor) (layout.RouterTensor, string) {
	switch t.Type {
	case F32, F16, BF16, Q8_0:
		return layout.RouterTensor{Source: t.Name, Type: t.Type.String(), Span: layout.Span{File: t.Shard, Offset: t.Offset, Bytes: t.Bytes}}, ""
	}
	return layout.RouterTensor{}, fmt.Sprintf("tensor %s has type %v, read are F32, F16, BF16 and Q8_0", t.Name, t.Type)
}

// routerRule reads how the routers choose. A model that does not say scores by
// sigmoid if it has a selection bias, as those that brought it do, else by softmax.
func (f *File) routerRule(rule *layout.RouterRule, shape layout.Shape, biased bool) (why string) {
	rule.Scoring = layout.ScoreSoftmax
	if biased {
		rule.Scoring = layout.ScoreSigmoid
	}
	number := func(key string) uint64 {
		v, ok := f.ArchMeta(key)
		if !ok {
			return 0
		}
		n, ok := v.Uint()
		if (!ok || n > layout.MaxExperts) && why == "" {
			why = fmt.Sprintf("metadata key %s.%s is %v, want a number up to %d", f.Architecture(), key, v, layout.MaxExperts)
		}
		return n
	}
	gating := number("expert_gating_func")
	groups, used := int(number("expert_group_count")), int(number("expert_group_used_count"))
	if v, ok := f.ArchMeta("expert_weights_norm"); ok {
		rule.Normalised, _ = v.Bool()
	}
	if v, ok := f.ArchMeta("expert_weights_scale"); ok {
		if scale, ok := v.Float(); ok && scale > 0 && scale < 1e30 {
			rule.Scale = scale
		}
	}
	if why != "" {
		return why
	}
	if gating != 0 {
		scoring, known := scorings[gating]
		if !known {
			return fmt.Sprintf("metadata key %s.expert_gating_func is %d, known are 1 to %d", f.Architecture(), gating, len(scorings))
		}
		rule.Scoring = scoring
	}
	if groups > 1 {
		if shape.Experts%groups != 0 || used < 1 || used > groups {
			return fmt.Sprintf("%d of %d groups of %d experts cannot be", used, groups, shape.Experts)
		}
		rule.Groups, rule.GroupsUsed = groups, used
	}
	return ""
}
