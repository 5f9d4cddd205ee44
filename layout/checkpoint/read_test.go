package checkpoint_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"outrider/internal/memfs"
	"outrider/internal/testfiles"
	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/layout/discover"
	"outrider/layout/gguf"
	"outrider/layout/safetensors"
)

const config = `{"model_type":"qwen3_moe","num_experts":4,"num_experts_per_tok":2,"num_hidden_layers":2}`

// small is a model of two layers of four experts, and one block ahead.
func small() *safetensors.Writer {
	w := &safetensors.Writer{}
	add := func(name string, shape ...int64) {
		w.TensorBytes(name, "BF16", shape, bytes.Repeat([]byte{byte(len(name)), 1}, int(shape[0]*shape[1])))
	}
	for _, prefix := range []string{"model.layers.0", "model.layers.1", "mtp.layers.0"} {
		add(prefix+".mlp.gate.weight", 4, 16)
		for e := range 4 {
			add(fmt.Sprintf("%s.mlp.experts.%d.gate_proj.weight", prefix, e), 8, 16)
			add(fmt.Sprintf("%s.mlp.experts.%d.up_proj.weight", prefix, e), 8, 16)
			add(fmt.Sprintf("%s.mlp.experts.%d.down_proj.weight", prefix, e), 16, 8)
		}
	}
	return w
}

type closer struct {
	bytes.Buffer
	done func([]byte)
}

func (c *closer) Close() error { c.done(c.Bytes()); return nil }

// smallFiles puts the model into /one (a file alone), /set (three shards and an
// index) and /two (with a GGUF file beside it).
func smallFiles(t *testing.T) *memfs.FS {
	t.Helper()
	fsys := memfs.New(memfs.Options{})
	put := func(name string, data []byte) {
		if err := fsys.WriteFile(name, data); err != nil {
			t.Fatal(err)
		}
	}
	w := small()
	err := w.WriteShards("model", w.CutShards(3), func(name string) (io.WriteCloser, error) {
		return &closer{done: func(b []byte) { put("/set/"+name, slices.Clone(b)) }}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var whole bytes.Buffer
	if _, err := w.WriteTo(&whole); err != nil {
		t.Fatal(err)
	}
	put("/set/config.json", []byte(config))
	put("/one/model.safetensors", whole.Bytes())
	put("/one/config.json", []byte(config))
	put("/bare/model.safetensors", whole.Bytes())
	put("/two/model.safetensors", whole.Bytes())
	put("/two/config.json", []byte(config))
	put("/two/model.gguf", ggufModel(t))
	put("/gguf/model.gguf", ggufModel(t))
	put("/gguf/README.md", []byte("text"))
	put("/bad/model.safetensors", whole.Bytes())
	put("/bad/config.json", []byte(`{"num_experts":"four"}`))
	put("/other/pytorch_model.bin", []byte("PK"))
	return fsys
}

func ggufModel(t *testing.T) []byte {
	t.Helper()
	w := &gguf.Writer{}
	w.Set("general.architecture", "qwen3moe")
	w.Set("qwen3moe.expert_used_count", uint32(2))
	for _, x := range []struct {
		name string
		dims []int64
	}{{"blk.0.ffn_up_exps.weight", []int64{16, 8, 4}}, {"blk.0.ffn_down_exps.weight", []int64{8, 16, 4}}} {
		w.TensorBytes(x.name, gguf.F16, x.dims, make([]byte, 2*16*8*4))
	}
	b, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A model is the same however it is named.
func TestReadSafetensors(t *testing.T) {
	fsys := smallFiles(t)
	for _, path := range []string{"/one", "/one/model.safetensors", "/set", "/set/model.safetensors.index.json", "/set/model-00002-of-00003.safetensors"} {
		cp, err := checkpoint.Read(fsys, path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if err := cp.Validate(); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		want := layout.Shape{Layers: 2, Experts: 4, TopK: 2}
		if cp.Format != "safetensors" || cp.Architecture != "qwen3_moe" || cp.Family != "qwen3-moe" || !cp.Shape.Equal(want) || cp.RestBytes != 2*2*4*16 || cp.Routers == nil {
			t.Errorf("%s: got %s %s %s %+v, %d resident bytes, routers %v (%s)", path, cp.Format, cp.Architecture, cp.Family, cp.Shape, cp.RestBytes, cp.Routers, cp.NoRouters)
		}
		if name := filepath.Base(filepath.Dir(cp.Files[0].Path)); cp.Name != name {
			t.Errorf("%s: got name %q, want the folder's, %q", path, cp.Name, name)
		}
		last := cp.Resident[len(cp.Resident)-1]
		if last.Name != "prediction blocks" || last.Tensors != 13 || !last.LeftOut {
			t.Errorf("%s: got groups %+v, want the block ahead left out", path, cp.Resident)
		}
		gate := cp.Layers[1].Tensors[0]
		if gate.Source != "model.layers.1.mlp.experts.{expert}.gate_proj.weight" || !slices.Equal(gate.Dims, []int64{16, 8}) || !slices.Equal(gate.SourceDims, []int64{16, 8}) {
			t.Errorf("%s: got %+v", path, gate)
		}
	}
	cp, err := checkpoint.ReadWith(fsys, "/set", checkpoint.Options{Predict: true, TopK: 3})
	if err != nil || cp.Shape.Layers != 3 || cp.Shape.TopK != 3 {
		t.Errorf("with wishes: got %+v and %v, want 3 layers and top-k 3", cp.Shape, err)
	}
	cp, err = checkpoint.ReadWith(fsys, "/bare", checkpoint.Options{TopK: 2})
	if err != nil || cp.Shape.Experts != 4 || !strings.HasPrefix(cp.Family, "like model.layers.0.mlp.experts.{expert}") {
		t.Errorf("without config.json: got %+v, %q and %v, want 4 experts", cp.Shape, cp.Family, err)
	}
	cp, err = checkpoint.Read(fsys, "/gguf")
	if err != nil || cp.Format != "gguf" || cp.Shape.Layers != 1 {
		t.Errorf("a folder of GGUF: got %+v and %v", cp.Shape, err)
	}
}

func TestReadErrors(t *testing.T) {
	fsys := smallFiles(t)
	for _, test := range []struct {
		path string
		is   error
		want string
	}{
		{"/two", checkpoint.ErrUnknown, "both model.gguf and model.safetensors"},
		{"/other", checkpoint.ErrUnknown, "without GGUF or safetensors files"},
		{"/other/pytorch_model.bin", checkpoint.ErrUnknown, "name a GGUF or safetensors file"},
		{"/bare", discover.ErrExperts, "put the model's config.json beside its weights, or give --top-k"},
		{"/bad", safetensors.ErrConfig, `num_experts is "four"`},
		{"/one/config.json", safetensors.ErrIndex, "config.json"},
	} {
		_, err := checkpoint.Read(fsys, test.path)
		if !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %v that says %q", test.path, err, test.is, test.want)
		}
	}
}

// A folder is a store if it looks like one, finished or not, else a checkpoint.
func TestOpenFolders(t *testing.T) {
	fsys := smallFiles(t)
	m, err := checkpoint.OpenWith(fsys, "/set", layout.Buffered, checkpoint.Options{TopK: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Source.Close()
	if m.Store != nil || m.Checkpoint == nil || m.Checkpoint.Shape.TopK != 1 || m.Format != "safetensors" || len(m.Files) != 3 {
		t.Errorf("got %+v, want a checkpoint in place", m)
	}
	if err := fsys.WriteFile("/set/manifest.json", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Open(fsys, "/set", layout.Buffered); err == nil || !strings.Contains(err.Error(), "manifest") {
		t.Errorf("a folder with a manifest: got %v, want an error about it", err)
	}
	if _, err := checkpoint.Open(fsys, "/other", layout.Buffered); err == nil {
		t.Error("a folder of something else opened")
	}
}

// The same weights in both forms give records of the same bytes.
func TestTinymoeInBothForms(t *testing.T) {
	dir := testfiles.Shared(t, "tinymoe/hf-bf16")
	cp, err := checkpoint.Read(layout.OS(), dir)
	if err != nil {
		t.Fatal(err)
	}
	want := layout.Shape{Layers: 8, Experts: 32, TopK: 4}
	if !cp.Shape.Equal(want) || cp.Routers == nil || cp.Routers.Width != 256 || !cp.Routers.Normalised {
		t.Errorf("got %+v, routers %+v (%s), want %+v", cp.Shape, cp.Routers, cp.NoRouters, want)
	}
	f16, err := checkpoint.Read(layout.OS(), testfiles.Shared(t, "tinymoe/tinymoe-f16.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	for l := range cp.Layers {
		for i := range cp.Layers[l].Tensors {
			a, b := cp.Layers[l].Tensors[i], f16.Layers[l].Tensors[i]
			if a.Name != b.Name || a.Bytes != b.Bytes || !slices.Equal(a.Dims, b.Dims) || a.Transposed || b.Transposed {
				t.Errorf("layer %d: got %+v, in GGUF %+v", l, a.Projection, b.Projection)
			}
		}
	}
}
