package refmodel

import (
	"path/filepath"
	"testing"

	"outrider/internal/dequant"
	"outrider/layout/gguf"
)

func TestLoad(t *testing.T) {
	s := synthetic{config: smallConfig(), merges: []string{"a b"}}
	s.config.Vocab = 259
	path, data := s.write(t)
	model, err := Load(nil, path)
	if err != nil {
		t.Fatal(err)
	}
	if model.Config != s.config {
		t.Errorf("config: got %+v, want %+v", model.Config, s.config)
	}
	if model.Name != "synthetic" || model.Tokenizer.Len() != 259 || model.Tokenizer.End() != 257 {
		t.Errorf("got name %q, %d tokens, end %d", model.Name, model.Tokenizer.Len(), model.Tokenizer.End())
	}
	var want int64
	for name, values := range data {
		if !matches(t, "blk.*.ffn_*_exps.weight", name) {
			want += 4 * int64(len(values))
		}
	}
	if got := model.DenseBytes(); got != want {
		t.Errorf("dense bytes: got %d, want %d", got, want)
	}
}

func matches(t *testing.T, pattern, name string) bool {
	t.Helper()
	ok, err := filepath.Match(pattern, name)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func TestLoadErrors(t *testing.T) {
	set := func(key string, value any) synthetic {
		return synthetic{config: smallConfig(), set: map[string]any{key: value}}
	}
	tests := []struct {
		name string
		make synthetic
		want error
		text string
	}{
		{"other architecture", set("general.architecture", "llama"), ErrArchitecture, `the model is "llama", the reference runner has only "qwen3moe"`},
		{"no architecture", set("general.architecture", nil), ErrArchitecture, `the model is ""`},
		{"no key", set("qwen3moe.embedding_length", nil), ErrModel, "metadata has no qwen3moe.embedding_length"},
		{"wrong kind", set("qwen3moe.block_count", "two"), ErrModel, "qwen3moe.block_count is two, want 0 to"},
		{"zero", set("qwen3moe.block_count", uint32(0)), ErrModel, "block_count is 0, want 1 to 4096"},
		{"huge", set("qwen3moe.context_length", uint64(1)<<63), ErrModel, "context_length is 9223372036854775808, want 0 to"},
		{"top-k", set("qwen3moe.expert_used_count", uint32(6)), ErrModel, "expert_used_count is 6, want 1 to 5"},
		{"heads", set("qwen3moe.attention.head_count_kv", uint32(3)), ErrModel, "4 query heads cannot share 3"},
		{"odd head", set("qwen3moe.attention.key_length", uint32(5)), ErrModel, "head width 5 is odd"},
		{"rope base", set("qwen3moe.rope.freq_base", float32(-1)), ErrModel, "rope.freq_base is -1"},
		{"rope base kind", set("qwen3moe.rope.freq_base", uint32(1)), ErrModel, "qwen3moe.rope.freq_base is 1, want a float"},
		{"eps", set("qwen3moe.attention.layer_norm_rms_epsilon", float32(2)), ErrModel, "layer_norm_rms_epsilon is 2"},
		{"value width", set("qwen3moe.attention.value_length", uint32(8)), ErrArchitecture, "attention.value_length is 8, only the head width 6"},
		{"partial RoPE", set("qwen3moe.rope.dimension_count", uint32(4)), ErrArchitecture, "rope.dimension_count is 4"},
		{"scaled RoPE", set("qwen3moe.rope.scaling.type", "yarn"), ErrArchitecture, `rope.scaling.type is "yarn"`},
		{"gate scale", set("qwen3moe.expert_weights_scale", float32(2.5)), ErrArchitecture, "expert_weights_scale is 2.5"},
		{"tokenizer", set("tokenizer.ggml.model", "llama"), ErrTokenizer, `tokenizer.ggml.model is "llama", only "gpt2"`},
		{"split rule", set("tokenizer.ggml.pre", "gpt-4o"), ErrTokenizer, `tokenizer.ggml.pre is "gpt-4o", only "qwen2"`},
		{"no tokens", set("tokenizer.ggml.tokens", nil), ErrTokenizer, "no list tokenizer.ggml.tokens"},
		{"no merges", set("tokenizer.ggml.merges", uint32(3)), ErrTokenizer, "no list tokenizer.ggml.merges"},
		{"token types", set("tokenizer.ggml.token_type", "x"), ErrTokenizer, "tokenizer.ggml.token_type is x"},
		{"end token", set("tokenizer.ggml.eos_token_id", uint32(999)), ErrTokenizer, "end token 999, but there are 258"},
		{"missing tensor", synthetic{config: smallConfig(), drop: "blk.1.attn_q.weight"}, ErrModel, "there is no tensor blk.1.attn_q.weight"},
		{"wrong dims", synthetic{config: smallConfig(), dims: map[string][]int64{"blk.0.attn_k.weight": {12, 24}}}, ErrModel,
			"tensor blk.0.attn_k.weight has dimensions [12 24], want [24 12]"},
		{"vocabulary and embedding", synthetic{config: smallConfig(), merges: []string{"a b"}}, ErrModel,
			"tensor token_embd.weight has dimensions [24 258], want [24 259]"},
	}
	for _, test := range tests {
		path, _ := test.make.write(t)
		_, err := Load(nil, path)
		wantError(t, test.name, err, test.want, test.text)
		wantError(t, test.name, err, test.want, "refmodel: load "+path)
	}
	_, err := Load(nil, "doc.go")
	wantError(t, "no GGUF", err, gguf.ErrNotGGUF, "refmodel: load: gguf: doc.go")
}

func TestUnknownExpertType(t *testing.T) {
	var r runner
	w := weights{typ: "IQ1_S", cols: 256, rows: 1, data: make([]byte, 50)}
	y := [][]float32{make([]float32, 1)}
	wantError(t, "IQ1_S", r.product(y, w, [][]float32{make([]float32, 256)}), dequant.ErrType, `"IQ1_S"`)
}
