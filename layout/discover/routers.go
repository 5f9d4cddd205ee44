package discover

import (
	"fmt"
	"math"
	"slices"

	"outrider/layout"
)

// routerParts are the tensors of one block's router, by index.
type routerParts struct {
	matrix, bias, selection, table, scale []int32
}

func (f *finder) noteRouter(c class, at place, tensor int32) {
	if at.block < 0 || c == other || c == routerOther || f.Tensors[tensor].Part > 0 {
		return
	}
	r := f.routers[at]
	if r == nil {
		r = &routerParts{}
	}
	switch c {
	case router:
		r.matrix = append(r.matrix, tensor)
	case routerBias:
		r.bias = append(r.bias, tensor)
	case selection:
		r.selection = append(r.selection, tensor)
	case hashTable:
		r.table = append(r.table, tensor)
	case routerScale:
		r.scale = append(r.scale, tensor)
	default:
		return
	}
	f.routers[at] = r
}

// checkRouters refuses a block that has a router, but none of the experts it
// chooses from.
func (f *finder) checkRouters() error {
	laid := make(map[place]bool, len(f.layers))
	for i := range f.layers {
		laid[f.layers[i].place] = true
	}
	for i := range f.asides {
		a := &f.asides[i]
		t := &f.Tensors[a.tensor]
		if a.class != router || a.stack != f.main || laid[a.place] || f.isAhead(a.place) {
			continue
		}
		if len(t.Dims) == 2 && t.Dims[1] == int64(f.experts) {
			return f.fail(ErrExperts, t, "block %d has a router, %q, but no expert tensors; other blocks have them, as %q", a.block, t.Name, f.tensor(f.layers[0].groups[0].members[0]).Name)
		}
	}
	return nil
}

// hidden is the width of the hidden state: what the model says, or else the
// columns of the block's router; 0 if neither is there.
func (f *finder) hidden(at place) int {
	if f.Facts.Hidden > 0 {
		return f.Facts.Hidden
	}
	if r := f.routers[at]; r != nil && len(r.matrix) == 1 {
		if t := &f.Tensors[r.matrix[0]]; len(t.Dims) == 2 && t.Dims[1] == int64(f.experts) && t.Dims[0] < 1<<31 {
			return int(t.Dims[0])
		}
	}
	return 0
}

// findRouters says where the router matrices lie. A model whose routers cannot
// be read is served all the same, without look-ahead: the text says why.
func (f *finder) findRouters(shape layout.Shape) (*layout.CheckpointRouters, string) {
	if why := f.Facts.Routing.Unreadable; why != "" {
		return nil, why
	}
	r := &layout.CheckpointRouters{RouterRule: f.Facts.Routing.RouterRule}
	biased := false
	for i := range f.layers {
		l := &f.layers[i]
		layer, why := f.router(l, r, shape.TopK)
		if why != "" {
			return nil, why
		}
		biased = biased || layer.Selection.Type != ""
		r.Layers = append(r.Layers, layer)
	}
	if why := completeRule(&r.RouterRule, shape, biased); why != "" {
		return nil, why
	}
	return r, ""
}

// completeRule fills in what the model does not say. One that does not say how
// it scores does it by sigmoid if it has a selection bias, as those that brought
// it do, else by softmax.
func completeRule(rule *layout.RouterRule, shape layout.Shape, biased bool) (why string) {
	if rule.Scoring == "" {
		rule.Scoring = layout.ScoreSoftmax
		if biased {
			rule.Scoring = layout.ScoreSigmoid
		}
	}
	if rule.Scale == 0 {
		rule.Scale = 1
	}
	if rule.Groups < 2 {
		rule.Groups, rule.GroupsUsed = 0, 0
		return ""
	}
	if shape.Experts%rule.Groups != 0 || rule.GroupsUsed < 1 || rule.GroupsUsed > rule.Groups {
		return fmt.Sprintf("%d of %d groups of %d experts cannot be", rule.GroupsUsed, rule.Groups, shape.Experts)
	}
	return ""
}

// router finds the tensors of one layer's router. All layers have the width, and
// as many rows of a hash table, that all stands for so far.
func (f *finder) router(l *layerGroups, all *layout.CheckpointRouters, topK int) (r layout.CheckpointRouter, why string) {
	parts := f.routers[l.place]
	switch {
	case parts == nil || len(parts.matrix) == 0:
		return r, fmt.Sprintf("block %d has no router matrix under a known name", l.block)
	case len(parts.matrix) > 1:
		return r, fmt.Sprintf("block %d has two router matrices, %s and %s", l.block, f.Tensors[parts.matrix[0]].Name, f.Tensors[parts.matrix[1]].Name)
	case len(parts.scale) > 0:
		return r, fmt.Sprintf("tensor %s scales the router's input, which is not done here", f.Tensors[parts.scale[0]].Name)
	}
	t := &f.Tensors[parts.matrix[0]]
	switch {
	case len(t.Dims) != 2 || t.Dims[1] != int64(f.experts) || t.Dims[0] > layout.MaxRouterBytes/4/int64(f.experts):
		return r, fmt.Sprintf("tensor %s has %s, want one row for each of %d experts", t.Name, f.dims(t.Dims), f.experts)
	case all.Width != 0 && t.Dims[0] != int64(all.Width):
		return r, fmt.Sprintf("tensor %s has %d columns, those before it %d", t.Name, t.Dims[0], all.Width)
	}
	all.Width = int(t.Dims[0])
	if r.Weight, why = routerTensor(t); why != "" {
		return r, why
	}
	if r.Bias, why = f.routerVector(parts.bias); why != "" {
		return r, why
	}
	if len(parts.table) > 0 {
		r.Hash, why = f.hashTable(&f.Tensors[parts.table[0]], all, topK)
		return r, why
	}
	r.Selection, why = f.routerVector(parts.selection)
	return r, why
}

// hashTable is the table of a layer that chooses by the token's number.
func (f *finder) hashTable(t *Tensor, all *layout.CheckpointRouters, topK int) (layout.RouterTensor, string) {
	switch {
	case len(t.Dims) != 2 || t.Dims[0] != int64(topK) || t.Dims[1] > math.MaxInt32:
		return layout.RouterTensor{}, fmt.Sprintf("tensor %s has %s, want %d experts for each token", t.Name, f.dims(t.Dims), topK)
	case all.Tokens != 0 && t.Dims[1] != int64(all.Tokens):
		return layout.RouterTensor{}, fmt.Sprintf("tensor %s has %d tokens, those before it %d", t.Name, t.Dims[1], all.Tokens)
	case t.Type != "I32" && t.Type != "I64":
		return layout.RouterTensor{}, fmt.Sprintf("tensor %s has type %s, read are I32 and I64", t.Name, t.Type)
	}
	all.Tokens = int(t.Dims[1])
	return placed(t), ""
}

func placed(t *Tensor) layout.RouterTensor {
	return layout.RouterTensor{Source: t.Name, Type: t.Type, Span: layout.Span{File: t.File, Offset: t.Offset, Bytes: t.Bytes}}
}

// routerVector is a bias, if the block has one: a number for each expert.
func (f *finder) routerVector(tensors []int32) (layout.RouterTensor, string) {
	if len(tensors) == 0 {
		return layout.RouterTensor{}, ""
	}
	t := &f.Tensors[tensors[0]]
	if len(tensors) > 1 {
		return layout.RouterTensor{}, fmt.Sprintf("tensors %s and %s are both the same bias of a router", t.Name, f.Tensors[tensors[1]].Name)
	}
	if n := len(t.Dims); n < 1 || t.Dims[0] != int64(f.experts) || slices.ContainsFunc(t.Dims[1:], func(d int64) bool { return d != 1 }) {
		return layout.RouterTensor{}, fmt.Sprintf("tensor %s has %s, want one number for each of %d experts", t.Name, f.dims(t.Dims), f.experts)
	}
	return routerTensor(t)
}

func routerTensor(t *Tensor) (layout.RouterTensor, string) {
	switch t.Type {
	case "F32", "F16", "BF16", "Q8_0":
		return placed(t), ""
	}
	return layout.RouterTensor{}, fmt.Sprintf("tensor %s has type %s, read are F32, F16, BF16 and Q8_0", t.Name, t.Type)
}
