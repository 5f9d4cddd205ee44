package stream

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"outrider/examples/llamacpp/ggml"
	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/layout/gguf"
	"outrider/runtime"
)

// plan says where llama.cpp's tensors are to point.
type plan struct {
	stacked map[string]stacked
	layers  map[int]int // of the runtime, by the number of llama.cpp's block
	// bytes is what the stacked tensors have in the checkpoint, rest all others.
	bytes, rest int64
}

// stacked is a tensor with one projection of all experts of a layer.
type stacked struct {
	layer int
	at    int64 // in an expert's slot
	bytes int64 // of one expert
	dims  []int64
}

// newPlan finds the tensors by what they are in the checkpoint, not by names. Of those
// with less than a matrix an expert, biases are taken along if rows is set, and stay
// with the dense weights otherwise, where single numbers (scales) always stay: ggml takes
// these for a vector without gaps.
func newPlan(m *checkpoint.Model, file *gguf.File, rows bool) (*plan, error) {
	p := &plan{stacked: map[string]stacked{}, layers: map[int]int{}}
	least := 3
	if rows {
		least = 2
	}
	shape := m.Source.Shape()
	for l := range shape.Layers {
		tensors := m.SourceTensors(l)
		if tensors == nil {
			return nil, fmt.Errorf("the store does not name the tensors that it was built from: build it again with outrider layout build")
		}
		for i, t := range tensors {
			if len(t.Dims) < least && !t.PerExpert() {
				continue
			}
			if err := p.add(l, m.Source.Record(l)[i], t, file, shape); err != nil {
				return nil, err
			}
		}
	}
	for _, t := range file.Tensors() {
		if _, ok := p.stacked[t.Name]; !ok {
			p.rest += t.Bytes
		}
	}
	return p, nil
}

func (p *plan) add(layer int, record layout.Projection, t layout.ManifestTensor, file *gguf.File, shape layout.Shape) error {
	have, ok := file.Tensor(t.Name)
	switch {
	case t.PerExpert():
		return fmt.Errorf("layer %d has a tensor for each expert (%s), which llama.cpp of today does not run: convert the model again", layer, t.Name)
	case !ok:
		return fmt.Errorf("the model has no tensor %q, of which the store has the experts: name the model that it was built from", t.Name)
	case have.Bytes != record.Bytes*int64(shape.Experts):
		return fmt.Errorf("tensor %q has %d bytes, want %d for %d experts: name the model that the store was built from", t.Name, have.Bytes, record.Bytes*int64(shape.Experts), shape.Experts)
	}
	block, err := blockNumber(t.Name)
	if err != nil {
		return err
	}
	if l, ok := p.layers[block]; ok && l != layer {
		return fmt.Errorf("block %d holds two layers of experts, %d and %d: such models are not served", block, l, layer)
	}
	p.layers[block] = layer
	p.stacked[t.Name] = stacked{layer: layer, bytes: record.Bytes, dims: have.Dims}
	p.bytes += have.Bytes
	return nil
}

// blockNumber is the 7 of "blk.7.ffn_up_exps.weight": llama.cpp numbers a router's
// choice by it.
func blockNumber(name string) (int, error) {
	rest, ok := strings.CutPrefix(name, "blk.")
	number, _, dot := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	if !ok || !dot || err != nil || n < 0 {
		return 0, fmt.Errorf("expert tensor %q is in no block that llama.cpp numbers (blk.N.)", name)
	}
	return n, nil
}

// names lists the stacked tensors.
func (p *plan) names() []string {
	names := make([]string, 0, len(p.stacked))
	for n := range p.stacked {
		names = append(names, n)
	}
	return names
}

// offsets takes over where the projections lie in the runtime's slots.
func (p *plan) offsets(m *checkpoint.Model, rt *runtime.Runtime) error {
	for l := range m.Source.Shape().Layers {
		at, err := rt.SlotOffsets(l)
		if err != nil {
			return err
		}
		for i, t := range m.SourceTensors(l) {
			if s, ok := p.stacked[t.Name]; ok {
				s.at = at[i]
				p.stacked[t.Name] = s
			}
		}
	}
	return nil
}

// place points a tensor into the memory for experts.
func (s stacked) place(t *ggml.Tensor, rt *runtime.Runtime) error {
	last := t.Rank() - 1
	if !slices.Equal(t.Dims[:last+1], s.dims) || int64(t.Strides[last]) != s.bytes {
		return fmt.Errorf("llama.cpp takes tensor %q for %v with %d bytes an expert, the checkpoint has %v with %d", t.Name(), t.Dims, t.Strides[last], s.dims, s.bytes)
	}
	if slots, stride := rt.Slots(); slots != nil {
		t.Stack(unsafe.Pointer(&slots[s.at]), stride, len(slots)/int(stride))
		return nil
	}
	stack := rt.Stack(s.layer)
	t.Stack(unsafe.Pointer(&stack[s.at]), rt.StackStride(s.layer), int(s.dims[last]))
	return nil
}
