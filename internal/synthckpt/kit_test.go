package synthckpt_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"outrider/internal/memfs"
	"outrider/internal/synthckpt"
	"outrider/layout"
)

// plan works out a checkpoint of a family with a few experts.
func plan(t testing.TB, family synthckpt.Info) *synthckpt.Model {
	t.Helper()
	m, err := synthckpt.Plan(synthckpt.Options{Family: family.Name, Format: family.Format, Seed: 1, Layers: layersOf(family), Experts: 4})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// layersOf is enough layers for a family to show all kinds of blocks that it has.
func layersOf(family synthckpt.Info) int {
	switch {
	case strings.HasPrefix(family.Name, "jamba"), strings.HasPrefix(family.Name, "kimi-linear"), strings.HasPrefix(family.Name, "nemotron"):
		return 6
	}
	return 4
}

// write puts the checkpoint into memory and returns what opens it.
func write(t testing.TB, m *synthckpt.Model, shards int) (fsys *memfs.FS, path string, files []string) {
	t.Helper()
	fsys = memfs.New(memfs.Options{Align: layout.Alignment{Memory: 512, Offset: 512}})
	if err := fsys.Mkdir("/m"); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join("/m", "model")
	if m.Format == synthckpt.GGUF {
		out += ".gguf"
	}
	r, err := m.Write(t.Context(), synthckpt.Target{FS: fsys, Out: out, Shards: shards})
	if err != nil {
		t.Fatal(err)
	}
	if m.Format == synthckpt.GGUF {
		return fsys, r.Files[0], r.Files
	}
	return fsys, out, r.Files
}

// without is the model without the tensor of this name.
func without(m *synthckpt.Model, name string) *synthckpt.Model {
	less := *m
	less.Tensors = slices.DeleteFunc(slices.Clone(m.Tensors), func(t synthckpt.Tensor) bool { return t.Name == name })
	return &less
}

func families(t testing.TB) []synthckpt.Info {
	t.Helper()
	list, err := synthckpt.Families()
	if err != nil {
		t.Fatal(err)
	}
	return list
}
