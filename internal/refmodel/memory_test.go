package refmodel

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"outrider/layout"
	"outrider/layout/gguf"
	"outrider/router"
	"outrider/trace"
)

// memory holds all experts of a checkpoint, and hands them out in an order of
// the test's choosing. Faults are planted by changing its maps.
type memory struct {
	layers [][]map[string]weights // [layer][expert]
	order  func(ids []int32)      // reorders the arrivals; nil: by index
	passes []trace.Phase
	closed int
}

var _ experts = (*memory)(nil)

type memoryExpert struct {
	index int
	parts map[string]weights
}

func (e *memoryExpert) Index() int { return e.index }

func (e *memoryExpert) part(name string) (weights, bool) {
	w, ok := e.parts[name]
	return w, ok
}

func (m *memory) step(phase trace.Phase, _ []int32) { m.passes = append(m.passes, phase) }

func (m *memory) look(int, []float32) {}

func (m *memory) close() error { m.closed++; return nil }

func (m *memory) each(_ context.Context, layer int, choices []router.Choice, compute func(expert) error) error {
	var ids []int32
	for _, c := range choices {
		ids = append(ids, c.Experts...)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if m.order != nil {
		m.order(ids)
	}
	for _, id := range ids {
		if err := compute(&memoryExpert{int(id), m.layers[layer][id]}); err != nil {
			return err
		}
	}
	return nil
}

// generator runs a model over the memory.
func (m *memory) generator(t testing.TB, model *Model, o Options) *Generator {
	t.Helper()
	g, err := newGenerator(model, func() (experts, error) { return m, nil }, o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// loadMemory reads a model and all its experts.
func loadMemory(t testing.TB, path string) (*Model, *memory) {
	t.Helper()
	model, err := Load(nil, path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := gguf.Open(layout.OS(), path)
	if err != nil {
		t.Fatal(err)
	}
	checkpoint, err := file.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	m, err := readExperts(checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	return model, m
}

func readExperts(c layout.Checkpoint) (*memory, error) {
	files := make([]*os.File, len(c.Files))
	for i, f := range c.Files {
		file, err := os.Open(f.Path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		files[i] = file
	}
	m := &memory{}
	for _, layer := range c.Layers {
		row := make([]map[string]weights, c.Shape.Experts)
		for e := range row {
			row[e] = map[string]weights{}
			for i := range layer.Tensors {
				t := &layer.Tensors[i]
				span := t.Span(e)
				data := make([]byte, span.Bytes)
				if _, err := files[span.File].ReadAt(data, span.Offset); err != nil {
					return nil, fmt.Errorf("%s: %w", t.Source, err)
				}
				row[e][t.Name] = weights{typ: t.Type, cols: int(t.Dims[0]), rows: int(t.Dims[1]), data: data}
			}
		}
		m.layers = append(m.layers, row)
	}
	return m, nil
}
