package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"unsafe"

	"outrider/router"
	"outrider/runtime"
	"outrider/trace"
)

// stacked is one projection of many experts, as engines with stacked tensors want it:
// matrix i begins at i x stride. The experts are those of a layer at addresses of their
// own, or the slots that those of all layers share.
type stacked struct {
	data   []byte
	stride int64
	bytes  int64 // of one expert
}

// stack tells where the projections of all layers lie. Once is enough: they stay there.
func stack(rt *runtime.Runtime) ([][]stacked, error) {
	layers := make([][]stacked, rt.Shape().Layers)
	for l := range layers {
		memory, stride := rt.Slots()
		if memory == nil { // PlacementFixed
			memory, stride = rt.Stack(l), rt.StackStride(l)
		}
		at, err := rt.SlotOffsets(l)
		if err != nil {
			return nil, err
		}
		for i, p := range rt.Record(l) {
			layers[l] = append(layers[l], stacked{memory[at[i]:], stride, p.Bytes})
		}
	}
	return layers, nil
}

// number is what a kernel is to call an expert that is held, so that it finds its
// matrices: that of its slot, or its own where it has an address.
func (s stacked) number(ex runtime.Expert) (int32, error) {
	first, _ := ex.At(0)
	at := int64(uintptr(unsafe.Pointer(unsafe.SliceData(first.Data))) - uintptr(unsafe.Pointer(unsafe.SliceData(s.data))))
	if at < 0 || at >= int64(len(s.data)) || at%s.stride != 0 {
		return 0, fmt.Errorf("%v lies outside the slots that the budget had at first", ex.ID())
	}
	return int32(at / s.stride), nil
}

// openStacked opens a model whose projections are stacked tensors. A checkpoint whose
// experts direct reads would shift is read through the page cache.
func openStacked(ctx context.Context, path string, o runtime.Options) (*runtime.Runtime, [][]stacked, error) {
	rt, err := runtime.Open(ctx, path, o)
	if err != nil {
		return nil, nil, err
	}
	tensors, err := stack(rt)
	if err == nil {
		return rt, tensors, nil
	}
	err = errors.Join(err, rt.Close())
	if errors.Is(err, runtime.ErrNotStacked) && !o.Buffered {
		o.Buffered = true
		return openStacked(ctx, path, o)
	}
	return nil, nil, err
}

// graph stands for an engine that is not ours: it computes a whole graph by itself,
// from tensors at addresses that it was once given, and calls back when a router has
// chosen. If it is answered false it leaves the rest of the graph; else it computes the
// matrices that the choice, in its memory, names then.
type graph struct {
	tensors [][]stacked
	topK    int
	experts int
	chosen  func(layer int, choices []router.Choice) bool
	kept    []uint64 // its memory of the sequence: what it made of each token
}

func (g *graph) decode(tokens []int32) {
	first := len(g.kept)
	g.kept = append(g.kept, make([]uint64, len(tokens))...)
	for layer, projections := range g.tensors {
		choices := madeUp(g.topK, g.experts, layer, tokens)
		if !g.chosen(layer, choices) {
			return
		}
		for t, c := range choices {
			for _, e := range c.Experts {
				g.kept[first+t] = g.kept[first+t]*31 + multiply(projections, int64(e))
			}
		}
	}
}

// multiply stands for kernels that take one matrix of a stack by its number.
func multiply(projections []stacked, number int64) uint64 {
	sum := fnv.New64a()
	for _, p := range projections {
		sum.Write(p.data[number*p.stride:][:p.bytes])
	}
	return sum.Sum64()
}

// client brings the engine its experts.
type client struct {
	rt      *runtime.Runtime
	session *runtime.Session
	engine  *graph
	chunk   int // most tokens of a pass

	ctx   context.Context
	use   runtime.Use // of the layer whose experts are computed now
	began bool        // the pass has used a layer
	err   error       // that stopped the pass
}

// chosen is the engine's callback: the graph waits until it returns. By then the
// experts of the layer before have been computed.
func (c *client) chosen(layer int, choices []router.Choice) bool {
	c.use.Release()
	if c.use, c.err = c.session.Use(c.ctx, layer, choices); c.err != nil {
		return false
	}
	c.began = true
	c.err = c.renumber(layer, choices)
	return c.err == nil
}

// renumber waits for the experts and puts the numbers that kernels are to use in the
// place of theirs. Where each has its own address, Use.Wait alone would do.
func (c *client) renumber(layer int, choices []router.Choice) error {
	numbers := make([]int32, c.rt.Shape().Experts)
	for ex, err := range c.use.Ready(c.ctx) {
		if err == nil {
			numbers[ex.Index()], err = c.engine.tensors[layer][0].number(ex)
		}
		if err != nil {
			return err
		}
	}
	for _, c := range choices {
		for i, e := range c.Experts {
			c.Experts[i] = numbers[e]
		}
	}
	return nil
}

// decode computes tokens, in as many passes as the memory for experts needs.
func (c *client) decode(ctx context.Context, tokens []int32) error {
	for len(tokens) > 0 {
		n := min(len(tokens), c.chunk)
		err := c.pass(ctx, tokens[:n])
		if errors.Is(err, runtime.ErrNeedsWaves) && n > 1 {
			c.chunk = n / 2
			continue
		}
		if err != nil {
			return err
		}
		tokens = tokens[n:]
	}
	return nil
}

// pass computes one batch, wholly or not at all.
func (c *client) pass(ctx context.Context, tokens []int32) error {
	phase := trace.Decode
	if len(tokens) > 1 {
		phase = trace.Prefill
	}
	c.session.Step(phase, tokens)
	c.ctx, c.began, c.err = ctx, false, nil
	kept := len(c.engine.kept)
	c.engine.decode(tokens)
	c.use.Release() // of the last layer
	if c.err == nil {
		return nil
	}
	c.engine.kept = c.engine.kept[:kept] // it has the tokens, and they mean nothing
	if !c.began {
		return c.err
	}
	return errors.Join(c.err, c.session.Rollback(len(tokens)))
}

// generate runs a prompt and some tokens, and returns what the engine made of them.
func generate(ctx context.Context, budget int64, p runtime.Placement) (*client, error) {
	rt, tensors, err := openStacked(ctx, modelPath, runtime.Options{BudgetBytes: budget, Placement: p, Poison: true})
	if err != nil {
		return nil, err
	}
	defer rt.Close()
	shape := rt.Shape()
	c := &client{rt: rt, session: rt.NewSession(), chunk: 512}
	defer c.session.Close()
	c.engine = &graph{tensors: tensors, topK: shape.TopK, experts: shape.Experts, chosen: c.chosen}
	if err := c.decode(ctx, []int32{71, 4, 19, 8, 33, 2, 60, 11}); err != nil {
		return nil, err
	}
	for token := range int32(8) {
		if err := c.decode(ctx, []int32{token}); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// An engine with stacked tensors and a callback computes the same with all experts at
// addresses of their own, and in slots for ten: a batch that needs more of a layer is cut.
func Example_engine() {
	ctx := context.Background()
	all, err := generate(ctx, 16<<20, runtime.PlacementFixed)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range []runtime.Placement{runtime.PlacementPooled, runtime.PlacementFixed} {
		few, err := generate(ctx, 600<<10, p)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(len(few.engine.kept), "tokens, equal:", slices.Equal(all.engine.kept, few.engine.kept))
		fmt.Println("tokens of a pass:", all.chunk, few.chunk)
	}
	// Output:
	// 16 tokens, equal: true
	// tokens of a pass: 512 2
	// 16 tokens, equal: true
	// tokens of a pass: 512 2
}
