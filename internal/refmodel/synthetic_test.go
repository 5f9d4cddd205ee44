package refmodel

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"outrider/layout/gguf"
)

// synthetic describes a small random F32 checkpoint.
type synthetic struct {
	config Config
	fused  bool // gate and up in one tensor
	output bool // an output matrix of its own
	merges []string
	// set and drop plant faults: metadata values to replace (nil: leave out)
	// and tensors to leave out; dims replaces a tensor's dimensions.
	set  map[string]any
	drop string
	dims map[string][]int64
}

func smallConfig() Config {
	return Config{Blocks: 2, Context: 64, Hidden: 24, Heads: 4, KVHeads: 2, HeadDim: 6, Experts: 5, TopK: 2,
		ExpertHidden: 20, Vocab: 258, RopeBase: 100, NormEps: 1e-6}
}

// tensorData is the random tensors by name, as they are in the file.
type tensorData map[string][]float32

// write makes the file and returns its path and tensors.
func (s synthetic) write(t testing.TB) (string, tensorData) {
	t.Helper()
	w := &gguf.Writer{}
	s.metadata(w)
	data := tensorData{}
	random := rand.New(rand.NewPCG(3, 4))
	c := s.config
	add := func(name string, scale float32, dims ...int64) {
		n := int64(1)
		for _, d := range dims {
			n *= d
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = scale * (random.Float32() - 0.5)
		}
		data[name] = values
		if name == s.drop {
			return
		}
		if replaced, ok := s.dims[name]; ok {
			dims = replaced
			n = 1
			for _, d := range dims {
				n *= d
			}
		}
		raw := make([]byte, 4*n)
		for i := range min(len(values), int(n)) {
			putFloat(raw[4*i:], values[i])
		}
		w.TensorBytes(name, gguf.F32, dims, raw)
	}
	h, f, e := int64(c.Hidden), int64(c.ExpertHidden), int64(c.Experts)
	add("token_embd.weight", 2, h, int64(c.Vocab))
	add("output_norm.weight", 2, h)
	if s.output {
		add("output.weight", 2, h, int64(c.Vocab))
	}
	for b := range c.Blocks {
		block := func(name string, dims ...int64) { add(fmt.Sprintf("blk.%d.%s.weight", b, name), 2, dims...) }
		block("attn_norm", h)
		block("attn_q_norm", int64(c.HeadDim))
		block("attn_k_norm", int64(c.HeadDim))
		block("attn_q", h, int64(c.queries()))
		block("attn_k", h, int64(c.keys()))
		block("attn_v", h, int64(c.keys()))
		block("attn_output", int64(c.queries()), h)
		block("ffn_norm", h)
		block("ffn_gate_inp", h, e)
		if s.fused {
			block("ffn_gate_up_exps", h, 2*f, e)
		} else {
			block("ffn_gate_exps", h, f, e)
			block("ffn_up_exps", h, f, e)
		}
		block("ffn_down_exps", f, h, e)
	}
	raw, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, data
}

func (s synthetic) metadata(w *gguf.Writer) {
	c := s.config
	v := lettersVocabulary(s.merges...)
	types := make([]int32, len(v.types))
	for i, kind := range v.types {
		types[i] = int32(kind)
	}
	values := map[string]any{
		"general.architecture":                      "qwen3moe",
		"general.name":                              "synthetic",
		"qwen3moe.block_count":                      uint32(c.Blocks),
		"qwen3moe.context_length":                   uint32(c.Context),
		"qwen3moe.embedding_length":                 uint32(c.Hidden),
		"qwen3moe.attention.head_count":             uint32(c.Heads),
		"qwen3moe.attention.head_count_kv":          uint32(c.KVHeads),
		"qwen3moe.attention.key_length":             uint32(c.HeadDim),
		"qwen3moe.attention.layer_norm_rms_epsilon": c.NormEps,
		"qwen3moe.rope.freq_base":                   float32(c.RopeBase),
		"qwen3moe.expert_count":                     uint32(c.Experts),
		"qwen3moe.expert_used_count":                uint32(c.TopK),
		"qwen3moe.expert_feed_forward_length":       uint32(c.ExpertHidden),
		"tokenizer.ggml.model":                      "gpt2",
		"tokenizer.ggml.pre":                        "qwen2",
		"tokenizer.ggml.tokens":                     v.tokens,
		"tokenizer.ggml.token_type":                 types,
		"tokenizer.ggml.merges":                     v.merges,
		"tokenizer.ggml.eos_token_id":               uint32(v.end),
	}
	for key, value := range s.set {
		values[key] = value
	}
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		if values[key] != nil {
			w.Set(key, values[key])
		}
	}
}
