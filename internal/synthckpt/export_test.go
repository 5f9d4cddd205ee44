package synthckpt_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"outrider/internal/memfs"
	"outrider/internal/synthckpt"
	"outrider/layout"
	"outrider/layout/export"
	"outrider/layout/gguf"
	"outrider/layout/safetensors"
)

// entry is a tensor as a file has it.
type entry struct {
	name, typ, dims string
	part            int
	data            []byte
}

// exported writes the store's experts as a checkpoint again: the tensors are those
// of the source with the names that discovery found, nothing else, byte for byte.
func exported(t *testing.T, fsys *memfs.FS, m *synthckpt.Model, source string) {
	t.Helper()
	out := filepath.Join("/m", "exported")
	if _, err := export.Export(t.Context(), export.Options{FS: fsys, Store: filepath.Join("/m", "store"), Out: out, ShardBytes: m.RoutedBytes() / 2}); err != nil {
		t.Fatal(err)
	}
	routed := map[string]bool{}
	for _, x := range m.Tensors {
		if x.Routed && !x.Predict {
			routed[x.Name] = true
		}
	}
	want := slices.DeleteFunc(entries(t, fsys, m.Format, source), func(e entry) bool { return !routed[e.name] })
	got := entries(t, fsys, m.Format, out)
	if len(got) != len(want) {
		t.Errorf("export: got %d tensors, want %d", len(got), len(want))
		return
	}
	for i, w := range want {
		if g := got[i]; g.name != w.name || g.typ != w.typ || g.dims != w.dims || !bytes.Equal(g.data, w.data) {
			t.Errorf("export: got %s %s %s, want %s %s %s with the same bytes", g.name, g.typ, g.dims, w.name, w.typ, w.dims)
			return
		}
	}
}

// entries lists all tensors of a checkpoint by name, with their bytes.
func entries(t *testing.T, fsys layout.FS, format, path string) (list []entry) {
	t.Helper()
	files := map[string][]byte{}
	slice := func(file string, offset, size int64) []byte {
		if files[file] == nil {
			files[file] = fileBytes(t, fsys, file)
		}
		return files[file][offset : offset+size]
	}
	if format == synthckpt.GGUF {
		f, err := gguf.Open(fsys, path)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range f.Tensors() {
			list = append(list, entry{x.Name, x.TypeName(), fmt.Sprint(x.Dims), 0, slice(f.Shards()[x.Shard].Path, x.Offset, x.Bytes)})
		}
	} else {
		s, err := safetensors.OpenSet(fsys, path)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range s.Tensors() {
			list = append(list, entry{x.Name, x.DType, fmt.Sprint(x.Shape), x.Part, slice(s.Shards()[x.Shard].Path, x.Offset, x.Bytes)})
		}
	}
	slices.SortFunc(list, func(a, b entry) int {
		if a.name != b.name {
			if a.name < b.name {
				return -1
			}
			return 1
		}
		return a.part - b.part
	})
	return list
}
