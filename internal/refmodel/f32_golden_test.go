package refmodel

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"outrider/layout"
	"outrider/layout/gguf"
)

// TestReferenceF32 writes the one-layer F32 model, published as safetensors, as
// GGUF: its experts run through the tensor library, and nothing is rounded on
// either side, so that the bounds are those of float32 itself.
func TestReferenceF32(t *testing.T) {
	numericOnly(t)
	shared := sharedData(t)
	path := filepath.Join(t.TempDir(), "f32.gguf")
	writeF32(t, shared, path)
	model, experts := loadMemory(t, path)
	compareReference(t, allowed{variant: "f32-1layer", logit: 2e-4, routes: 90}, readReference(t, filepath.Join(shared, "reference.json")),
		func(o Options) *Generator { return experts.generator(t, model, o) })
}

func writeF32(t *testing.T, shared, path string) {
	t.Helper()
	donor, err := gguf.Open(layout.OS(), filepath.Join(shared, "tinymoe-1layer-q4_0.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	w := &gguf.Writer{}
	for _, key := range donor.Keys() {
		if value, _ := donor.Meta(key); key != "general.alignment" {
			w.Set(key, value)
		}
	}
	tensors := safetensors(t, filepath.Join(shared, "hf-f32-1layer"))
	for name, source := range map[string]string{
		"token_embd": "model.embed_tokens", "output_norm": "model.norm",
		"blk.0.attn_norm": "model.layers.0.input_layernorm", "blk.0.ffn_norm": "model.layers.0.post_attention_layernorm",
		"blk.0.attn_q": "model.layers.0.self_attn.q_proj", "blk.0.attn_k": "model.layers.0.self_attn.k_proj",
		"blk.0.attn_v": "model.layers.0.self_attn.v_proj", "blk.0.attn_output": "model.layers.0.self_attn.o_proj",
		"blk.0.attn_q_norm": "model.layers.0.self_attn.q_norm", "blk.0.attn_k_norm": "model.layers.0.self_attn.k_norm",
		"blk.0.ffn_gate_inp": "model.layers.0.mlp.gate",
	} {
		s, ok := tensors[source+".weight"]
		if !ok {
			t.Fatalf("safetensors: no %s", source)
		}
		w.TensorBytes(name+".weight", gguf.F32, s.dims, s.data)
	}
	for _, name := range []string{"gate", "up", "down"} {
		var dims []int64
		var data []byte
		for e := range int64(32) {
			s := tensors[fmt.Sprintf("model.layers.0.mlp.experts.%d.%s_proj.weight", e, name)]
			dims, data = append(s.dims, e+1), append(data, s.data...)
		}
		w.TensorBytes("blk.0.ffn_"+name+"_exps.weight", gguf.F32, dims, data)
	}
	raw, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

// safetensor is one F32 tensor, dimensions fastest first.
type safetensor struct {
	dims []int64
	data []byte
}

func safetensors(t *testing.T, dir string) map[string]safetensor {
	t.Helper()
	shards, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil || len(shards) == 0 {
		t.Skipf("no safetensors in %s", dir)
	}
	tensors := map[string]safetensor{}
	for _, shard := range shards {
		raw, err := os.ReadFile(shard)
		if err != nil {
			t.Fatal(err)
		}
		n := 8 + binary.LittleEndian.Uint64(raw)
		var header map[string]struct {
			Shape   []int64  `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}
		if err := json.Unmarshal(raw[8:n], &header); err != nil {
			t.Fatal(err)
		}
		for name, h := range header {
			slices.Reverse(h.Shape)
			tensors[name] = safetensor{h.Shape, raw[n:][h.Offsets[0]:h.Offsets[1]]}
		}
	}
	return tensors
}
