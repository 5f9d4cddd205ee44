package safetensors_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"outrider/internal/memfs"
	"outrider/internal/testfiles"
	"outrider/layout"
	"outrider/layout/safetensors"
)

// file is a file of U8 tensors of four bytes each.
func file(t testing.TB, names ...string) []byte {
	t.Helper()
	var w safetensors.Writer
	for i, name := range names {
		w.TensorBytes(name, "U8", []int64{4}, bytes.Repeat([]byte{byte(i + 1)}, 4))
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// indexText is an index without metadata: pairs of a tensor and its file.
func indexText(pairs ...string) []byte {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, ",%q:%q", pairs[i], pairs[i+1])
	}
	return []byte(`{"weight_map":{` + strings.TrimPrefix(b.String(), ",") + `}}`)
}

const (
	one, two = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
	mainName = "model.safetensors.index.json"
)

// folder is a folder "/m" of these files.
func folder(t testing.TB, files map[string][]byte) *memfs.FS {
	t.Helper()
	fsys := memfs.New(memfs.Options{})
	if err := fsys.MkdirAll("/m"); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if err := fsys.WriteFile(filepath.Join("/m", name), data); err != nil {
			t.Fatal(err)
		}
	}
	return fsys
}

// plainSet is two shards, their index and a configuration.
func plainSet(t testing.TB) map[string][]byte {
	return map[string][]byte{one: file(t, "a", "b"), two: file(t, "c"), mainName: indexText("a", one, "b", one, "c", two), "config.json": []byte(`{"k":1}`)}
}

// with is a copy of files with some changed; nil takes one out.
func with(files map[string][]byte, changes map[string][]byte) map[string][]byte {
	out := map[string][]byte{}
	for name, data := range files {
		out[name] = data
	}
	for name, data := range changes {
		if out[name] = data; data == nil {
			delete(out, name)
		}
	}
	return out
}

// text shows a set: "file: tensor tensor.part…" for each of its files.
func text(s *safetensors.Set) string {
	var b strings.Builder
	for i, shard := range s.Shards() {
		fmt.Fprintf(&b, "%s:", filepath.Base(shard.Path))
		for _, t := range s.Tensors() {
			if t.Shard == i {
				fmt.Fprintf(&b, " %s", t.Name)
				if t.Part > 0 {
					fmt.Fprintf(&b, ".%d", t.Part)
				}
			}
		}
		b.WriteString("; ")
	}
	return strings.TrimSuffix(b.String(), "; ")
}

func TestOpenSet(t *testing.T) {
	plain := plainSet(t)
	both := one + ": a b; " + two + ": c"
	nine := map[string][]byte{}
	for i := range 11 {
		nine[fmt.Sprintf("model-%d-of-11.safetensors", i+1)] = file(t, fmt.Sprintf("t%d", i))
	}
	parts := map[string][]byte{
		"w-00000-TP-common.safetensors": file(t, "norm"), "w-00001-TP-000.safetensors": file(t, "w1"), "w-00002-TP-000.safetensors": file(t, "w2", "router"),
		"w-00001-TP-001.safetensors": file(t, "w1"), "w-00002-TP-001.safetensors": file(t, "w2", "late"),
	}
	partsText := "w-00000-TP-common.safetensors: norm; w-00001-TP-000.safetensors: w1; w-00001-TP-001.safetensors: w1.1; w-00002-TP-000.safetensors: w2 router; w-00002-TP-001.safetensors: w2.1 late"
	for _, c := range []struct {
		name, path string
		files      map[string][]byte
		want       string
		notes      []string // a part of each
	}{
		{"folder with index", "/m", plain, both, nil},
		{"index", "/m/" + mainName, plain, both, nil},
		{"a shard that the index names", "/m/" + two, plain, both, nil},
		{"shards without index", "/m", with(plain, map[string][]byte{mainName: nil}), both, []string{"no index lies beside the 2 files"}},
		{"a shard without index", "/m/" + two, with(plain, map[string][]byte{mainName: nil, "other.safetensors": file(t, "c")}), both, []string{"no index names " + two}},
		{"single file", "/m", map[string][]byte{"model.safetensors": file(t, "a")}, "model.safetensors: a", nil},
		{"single file by name", "/m/model.safetensors", map[string][]byte{"model.safetensors": file(t, "a"), "x.safetensors": file(t, "a")}, "model.safetensors: a", nil},
		{"single file with an index", "/m/model.safetensors", map[string][]byte{"model.safetensors": file(t, "a"), mainName: indexText("a", "model.safetensors")}, "model.safetensors: a", nil},
		{"oddly named files of an index", "/m/x.safetensors", map[string][]byte{"x.safetensors": file(t, "a"), "y.safetensors": file(t, "b"), mainName: indexText("a", "x.safetensors", "b", "y.safetensors")}, "x.safetensors: a; y.safetensors: b", nil},
		{"several files, no index", "/m", map[string][]byte{"layer1.safetensors": file(t, "b"), "layer0.safetensors": file(t, "a")}, "layer0.safetensors: a; layer1.safetensors: b", []string{"taken together: layer0.safetensors, layer1.safetensors"}},
		{"shards and one more", "/m", with(plain, map[string][]byte{mainName: nil, "mtp.safetensors": file(t, "m")}), both + "; mtp.safetensors: m", []string{"mtp.safetensors"}},
		{"counted from 0", "/m", map[string][]byte{"m-00000-of-00002.safetensors": file(t, "a"), "m-00001-of-00002.safetensors": file(t, "b")}, "m-00000-of-00002.safetensors: a; m-00001-of-00002.safetensors: b", []string{"no index"}},
		{"numbers of one digit and two", "/m", nine, "model-1-of-11.safetensors: t0; model-2-of-11.safetensors: t1; model-3-of-11.safetensors: t2; model-4-of-11.safetensors: t3; model-5-of-11.safetensors: t4; model-6-of-11.safetensors: t5; " +
			"model-7-of-11.safetensors: t6; model-8-of-11.safetensors: t7; model-9-of-11.safetensors: t8; model-10-of-11.safetensors: t9; model-11-of-11.safetensors: t10", []string{"no index"}},
		{"suffix before the number", "/m/model.safetensors-00001-of-00002.safetensors", map[string][]byte{"model.safetensors-00001-of-00002.safetensors": file(t, "a"), "model.safetensors-00002-of-00002.safetensors": file(t, "b")},
			"model.safetensors-00001-of-00002.safetensors: a; model.safetensors-00002-of-00002.safetensors: b", []string{"no index"}},
		{"consolidated beside an index", "/m", with(plain, map[string][]byte{"consolidated.safetensors": file(t, "a", "b", "c"), "original/x.safetensors": file(t, "a")}), both, []string{"left out, for model.safetensors.index.json does not name them: consolidated.safetensors"}},
		{"consolidated beside a file", "/m", map[string][]byte{"model.safetensors": file(t, "a"), "consolidated.safetensors": file(t, "a")}, "model.safetensors: a", []string{"left out, as the same weights a second time: consolidated.safetensors"}},
		{"consolidated alone", "/m", map[string][]byte{"consolidated.safetensors": file(t, "a")}, "consolidated.safetensors: a", nil},
		{"consolidated by name", "/m/consolidated.safetensors", with(plain, map[string][]byte{"consolidated.safetensors": file(t, "a")}), "consolidated.safetensors: a", nil},
		{"adapter beside a file", "/m", map[string][]byte{"model.safetensors": file(t, "a"), "adapter_model.safetensors": file(t, "a")}, "model.safetensors: a", []string{"left out, as adapters to a model: adapter_model.safetensors"}},
		{"two indexes", "/m", with(plain, map[string][]byte{"consolidated.safetensors.index.json": []byte("not read")}), both, []string{"model.safetensors.index.json was followed, not consolidated.safetensors.index.json"}},
		{"total size is right", "/m", with(plain, map[string][]byte{mainName: append([]byte(`{"metadata":{"total_size":12.0},`), indexText("a", one, "b", one, "c", two)[1:]...)}), both, nil},
		{"total size is wrong", "/m", with(plain, map[string][]byte{mainName: append([]byte(`{"metadata":{"total_size":"13"},"x":[{}],`), indexText("a", one, "b", one, "c", two)[1:]...)}), both, []string{"says that the tensors have 13 bytes, they have 12"}},
		{"total size is nonsense", "/m", with(plain, map[string][]byte{mainName: append([]byte(`{"metadata":[],`), indexText("a", one, "b", one, "c", two)[1:]...)}), both, nil},
		{"names with escapes", "/m", map[string][]byte{"x.safetensors": file(t, `a"\é`), mainName: []byte(`{"weight_map":{"a\"\\\u00e9":"x.safetensors"}}`)}, `x.safetensors: a"\é`, nil},
		{"an index of nothing", "/m", map[string][]byte{mainName: indexText(), "x.safetensors": file(t, "a")}, "", []string{"left out"}},
		{"tensor-parallel parts", "/m", parts, partsText, []string{"no index"}},
		{"tensor-parallel parts by name", "/m/w-00001-TP-001.safetensors", with(parts, map[string][]byte{"x.safetensors": file(t, "w1")}), partsText, []string{"no index names"}},
		{"tensor-parallel parts with an index", "/m", with(parts, map[string][]byte{mainName: indexText("norm", "w-00000-TP-common.safetensors", "w1", "w-00001-TP-000.safetensors", "w2", "w-00002-TP-001.safetensors",
			"router", "w-00002-TP-000.safetensors", "late", "w-00002-TP-001.safetensors")}), partsText, nil},
	} {
		s, err := safetensors.OpenSet(folder(t, c.files), c.path)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := text(s); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
		if len(s.Notes()) != len(c.notes) {
			t.Errorf("%s: got notes %q, want %d", c.name, s.Notes(), len(c.notes))
			continue
		}
		for i, want := range c.notes {
			if !strings.Contains(s.Notes()[i], want) {
				t.Errorf("%s: got note %q, want it to contain %q", c.name, s.Notes()[i], want)
			}
		}
	}
}

func TestSetConfigAndLookup(t *testing.T) {
	for path, want := range map[string]string{"/m/config.json": `{"k":1}`, "/m/params.json": `{"p":2}`, "": ""} {
		files := with(plainSet(t), map[string][]byte{"params.json": []byte(`{"p":2}`)})
		if path != "/m/config.json" {
			files = with(files, map[string][]byte{"config.json": nil})
		}
		if path == "" {
			files = with(files, map[string][]byte{"params.json": nil})
		}
		s, err := safetensors.OpenSet(folder(t, files), "/m")
		if err != nil {
			t.Fatal(err)
		}
		if got, data, ok := s.Config(); got != path || string(data) != want || ok != (path != "") {
			t.Errorf("got %q %q %v, want %q %q", got, data, ok, path, want)
		}
		if c, ok := s.Tensor("c"); !ok || c.Shard != 1 || c.Bytes != 4 {
			t.Errorf("got %+v %v, want tensor c of the second file", c, ok)
		}
		if _, ok := s.Tensor("zz"); ok {
			t.Error("found a tensor zz")
		}
	}
	files := with(plainSet(t), map[string][]byte{"config.json": make([]byte, 16<<20+1)})
	if _, err := safetensors.OpenSet(folder(t, files), "/m"); !errors.Is(err, safetensors.ErrConfig) {
		t.Errorf("got %v, want %v", err, safetensors.ErrConfig)
	}
}

func TestOpenSetFileErrors(t *testing.T) {
	fsys := folder(t, plainSet(t))
	for _, path := range []string{"/m/none.safetensors", "/none", "/none/model.safetensors.index.json"} {
		if _, err := safetensors.OpenSet(fsys, path); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "safetensors: open "+path) {
			t.Errorf("%s: got %v, want %v", path, err, fs.ErrNotExist)
		}
	}
}

// The test model as Hugging Face keeps it.
func TestOpenRealSet(t *testing.T) {
	dir := testfiles.Shared(t, "tinymoe/hf-bf16")
	s, err := safetensors.OpenSet(layout.OS(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, ts := range s.Tensors() {
		total += ts.Bytes
	}
	path, data, ok := s.Config()
	if len(s.Shards()) != 2 || len(s.Notes()) != 0 || total != 29500928 || !ok || path != filepath.Join(dir, "config.json") || !bytes.Contains(data, []byte("Qwen3Moe")) {
		t.Errorf("got %d shards, notes %q, %d bytes, %s", len(s.Shards()), s.Notes(), total, path)
	}
	again, err := safetensors.OpenSet(layout.OS(), filepath.Join(dir, two))
	if err != nil || !slices.EqualFunc(again.Tensors(), s.Tensors(), func(a, b safetensors.SetTensor) bool {
		return a.Name == b.Name && a.Shard == b.Shard && a.Offset == b.Offset
	}) {
		t.Errorf("by its second shard: got other tensors, %v", err)
	}
}
