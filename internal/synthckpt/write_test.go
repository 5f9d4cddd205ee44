package synthckpt_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"outrider/internal/memfs"
	"outrider/internal/synthckpt"
	"outrider/layout"
)

func fileBytes(t testing.TB, fsys layout.FS, path string) []byte {
	t.Helper()
	f, err := fsys.Open(path, layout.Buffered)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, f.Size())
	if _, err := f.ReadAt(b, 0); err != nil && len(b) > 0 {
		t.Fatal(err)
	}
	return b
}

// Equal options give equal bytes, another seed gives others.
func TestDeterministic(t *testing.T) {
	for _, family := range []synthckpt.Info{{Name: "qwen2-moe", Format: synthckpt.GGUF}, {Name: "deepseek-v4", Format: synthckpt.Safetensors}} {
		all := func(seed uint64) []byte {
			m, err := synthckpt.Plan(synthckpt.Options{Family: family.Name, Format: family.Format, Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			fsys, _, files := write(t, m, 2)
			var b []byte
			for _, name := range files {
				b = append(b, fileBytes(t, fsys, name)...)
			}
			return b
		}
		one := all(1)
		if !bytes.Equal(one, all(1)) {
			t.Errorf("%s: got other bytes for the same seed", family.Name)
		}
		if bytes.Equal(one, all(2)) {
			t.Errorf("%s: got the same bytes for another seed", family.Name)
		}
	}
}

func TestNamesOfFiles(t *testing.T) {
	for _, c := range []struct {
		family, format string
		shards         int
		want           string
	}{
		{"qwen3-moe", "gguf", 1, "model.gguf"},
		{"qwen3-moe", "gguf", 2, "model-00001-of-00002.gguf model-00002-of-00002.gguf"},
		{"qwen3-moe", "safetensors", 1, "model.safetensors config.json"},
		{"qwen3-moe", "safetensors", 2, "model-00001-of-00002.safetensors model-00002-of-00002.safetensors model.safetensors.index.json config.json"},
		{"mistral-large-3", "safetensors", 1, "consolidated.safetensors params.json"},
		{"grok-2", "safetensors", 1, "pytorch_model-00000-TP-common.safetensors pytorch_model-00000-TP-000.safetensors pytorch_model-00000-TP-001.safetensors config.json"},
	} {
		_, _, files := write(t, plan(t, synthckpt.Info{Name: c.family, Format: c.format}), c.shards)
		var got []string
		for _, name := range files {
			got = append(got, filepath.Base(name))
		}
		if !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%s as %s in %d: got %q, want %s", c.family, c.format, c.shards, got, c.want)
		}
	}
}

// What is there stays as it is, and a failure leaves nothing.
func TestWriteFails(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, format := range []string{synthckpt.GGUF, synthckpt.Safetensors} {
		m := plan(t, synthckpt.Info{Name: "qwen3-moe", Format: format})
		var total int64
		for _, x := range m.Tensors {
			total += x.Bytes
		}
		for _, c := range []struct {
			name   string
			ctx    context.Context
			fsys   *memfs.FS
			exists bool
			shards int
			want   error
		}{
			{"it exists", t.Context(), memfs.New(memfs.Options{}), true, 1, fs.ErrExist},
			{"no room", t.Context(), memfs.New(memfs.Options{Limit: total / 4}), false, 1, nil},
			{"no room for the second shard", t.Context(), memfs.New(memfs.Options{Limit: total * 3 / 4}), false, 2, nil},
			{"canceled", canceled, memfs.New(memfs.Options{}), false, 2, context.Canceled},
			{"shards", t.Context(), memfs.New(memfs.Options{}), false, 100_000, synthckpt.ErrOptions},
		} {
			if err := c.fsys.Mkdir("/m"); err != nil {
				t.Fatal(err)
			}
			out := "/m/x.gguf"
			if c.exists {
				f, err := c.fsys.Create(out)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.WriteAt([]byte("mine"), 0); err != nil {
					t.Fatal(err)
				}
			}
			_, err := m.Write(c.ctx, synthckpt.Target{FS: c.fsys, Out: out, Shards: c.shards})
			if err == nil || (c.want != nil && !errors.Is(err, c.want)) {
				t.Errorf("%s as %s: got %v, want %v", c.name, format, err, c.want)
			}
			entries, err := c.fsys.ReadDir("/m")
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case !c.exists && len(entries) > 0:
				t.Errorf("%s as %s: %s is left", c.name, format, entries[0].Name())
			case c.exists && string(fileBytes(t, c.fsys, out)) != "mine":
				t.Errorf("%s as %s: the file that was there has changed", c.name, format)
			}
		}
	}
	m := plan(t, synthckpt.Info{Name: "qwen3-moe", Format: synthckpt.GGUF})
	if _, err := m.Write(t.Context(), synthckpt.Target{FS: memfs.New(memfs.Options{}), Out: "/x"}); !errors.Is(err, synthckpt.ErrOptions) {
		t.Errorf("a GGUF file without its suffix: got %v, want ErrOptions", err)
	}
}

func TestProgress(t *testing.T) {
	m := plan(t, synthckpt.Info{Name: "qwen3-moe", Format: synthckpt.GGUF})
	fsys := memfs.New(memfs.Options{})
	var last, all int64
	r, err := m.Write(t.Context(), synthckpt.Target{FS: fsys, Out: "/x.gguf", Progress: func(done, total int64) {
		if done < last {
			t.Errorf("progress went from %d back to %d", last, done)
		}
		last, all = done, total
	}})
	if err != nil {
		t.Fatal(err)
	}
	if last != all || last != r.TensorBytes || m.RoutedBytes() >= last {
		t.Errorf("got %d of %d, tensors of %d bytes, experts of %d: want all of them, and fewer experts", last, all, r.TensorBytes, m.RoutedBytes())
	}
}
