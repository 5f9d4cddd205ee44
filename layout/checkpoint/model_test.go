package checkpoint_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout"
	"outrider/layout/checkpoint"
)

// store builds a store of the checkpoint at path, changed first if change says so,
// and opens it.
func store(t *testing.T, fsys *memfs.FS, path, dir string, change func(*layout.Checkpoint)) *checkpoint.Model {
	t.Helper()
	cp, err := checkpoint.Read(fsys, path)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&cp)
	}
	plan, err := layout.PlanStore(cp, layout.PlanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := layout.Build(t.Context(), layout.BuildOptions{FS: fsys, Dir: dir, Plan: plan, Checkpoint: &cp}); err != nil {
		t.Fatal(err)
	}
	return openModel(t, fsys, dir)
}

func openModel(t *testing.T, fsys layout.FS, path string) *checkpoint.Model {
	t.Helper()
	m, err := checkpoint.Open(fsys, path, layout.Buffered)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Source.Close() })
	return m
}

// In place and in a store, the tensors are those of each layer's record.
func TestSourceTensors(t *testing.T) {
	fsys := smallFiles(t)
	for _, c := range []struct {
		path   string
		layers int
		names  map[string]string // by projection, of the last layer
		dims   map[string][]int64
	}{
		{"/set", 2, map[string]string{
			"gate": "model.layers.1.mlp.experts.{expert}.gate_proj.weight",
			"up":   "model.layers.1.mlp.experts.{expert}.up_proj.weight",
			"down": "model.layers.1.mlp.experts.{expert}.down_proj.weight",
		}, map[string][]int64{"gate": {16, 8}, "up": {16, 8}, "down": {8, 16}}},
		{"/gguf", 1, map[string]string{"up": "blk.0.ffn_up_exps.weight", "down": "blk.0.ffn_down_exps.weight"},
			map[string][]int64{"up": {16, 8, 4}, "down": {8, 16, 4}}},
	} {
		models := []*checkpoint.Model{openModel(t, fsys, c.path), store(t, fsys, c.path, c.path+".outrider", nil)}
		for i, m := range models {
			record, got := m.Source.Record(c.layers-1), m.SourceTensors(c.layers-1)
			if len(got) != len(record) || len(got) != len(c.names) {
				t.Fatalf("%s, model %d: got %d tensors and %d projections, want %d", c.path, i, len(got), len(record), len(c.names))
			}
			for j, p := range record {
				if got[j].Name != c.names[p.Name] || !slices.Equal(got[j].Dims, c.dims[p.Name]) {
					t.Errorf("%s, model %d: got %+v of %s, want %s %v", c.path, i, got[j], p.Name, c.names[p.Name], c.dims[p.Name])
				}
			}
			if first := m.SourceTensors(0); c.layers > 1 && !strings.Contains(first[0].Name, ".layers.0.") {
				t.Errorf("%s, model %d: got %+v of layer 0", c.path, i, first)
			}
		}
		models[1].SourceTensors(0)[0].Name = "changed"
		if got, want := models[1].SourceTensors(0), models[0].SourceTensors(0); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v of the store, in place %+v", c.path, got, want)
		}
	}
	old := store(t, fsys, "/set", "/old.outrider", func(cp *layout.Checkpoint) {
		for l := range cp.Layers {
			for i := range cp.Layers[l].Tensors {
				cp.Layers[l].Tensors[i].SourceDims = nil
			}
		}
	})
	if got := old.SourceTensors(1); got != nil {
		t.Errorf("got %+v of a store that does not know, want nil", got)
	}
}

func TestBuiltFrom(t *testing.T) {
	fsys := smallFiles(t)
	m := store(t, fsys, "/set", "/set.outrider", nil)
	inPlace := openModel(t, fsys, "/set")
	moved := slices.Clone(inPlace.Files)
	for i := range moved {
		moved[i].Path = "/elsewhere/" + moved[i].Path
	}
	changed := func(change func(*layout.CheckpointFile)) []layout.CheckpointFile {
		files := slices.Clone(moved)
		change(&files[1])
		return files
	}
	for _, c := range []struct {
		name  string
		files []layout.CheckpointFile
		want  bool
	}{
		{"the same", inPlace.Files, true},
		{"moved", moved, true},
		{"another size", changed(func(f *layout.CheckpointFile) { f.Size++ }), false},
		{"another header", changed(func(f *layout.CheckpointFile) { f.Header = strings.Repeat("0", len(f.Header)) }), false},
		{"one less", moved[:2], false},
		{"none", nil, false},
	} {
		if got := m.BuiltFrom(c.files); got != c.want {
			t.Errorf("%s: got %v of the store, want %v", c.name, got, c.want)
		}
		if got := inPlace.BuiltFrom(c.files); got != c.want {
			t.Errorf("%s: got %v in place, want %v", c.name, got, c.want)
		}
	}
	if unknown := (&checkpoint.Model{}); unknown.BuiltFrom(nil) {
		t.Error("a model that names no files was built from none")
	}
}
