package refmodel

import (
	"fmt"

	"outrider/layout/gguf"
)

// Architecture is the one architecture that is implemented, by its GGUF name.
const Architecture = "qwen3moe"

// metadata reads typed metadata and keeps the first error, so that a list of
// numbers can be read without a check after each.
type metadata struct {
	file *gguf.File
	err  error
}

func (m *metadata) fail(err error) {
	if m.err == nil {
		m.err = err
	}
}

// lookup finds the key of the architecture.
func (m *metadata) lookup(key string) (gguf.Value, string, bool) {
	key = Architecture + "." + key
	v, ok := m.file.Meta(key)
	return v, key, ok
}

func (m *metadata) int(key string) int {
	v, name, found := m.lookup(key)
	n, ok := v.Uint()
	switch {
	case !found:
		m.fail(fmt.Errorf("%w: metadata has no %s", ErrModel, name))
	case !ok || n > maxContext:
		m.fail(fmt.Errorf("%w: %s is %v, want 0 to %d", ErrModel, name, v, maxContext))
	}
	return int(min(n, maxContext))
}

// intOr is int for a key that may be absent.
func (m *metadata) intOr(key string, absent int) int {
	if _, _, found := m.lookup(key); !found {
		return absent
	}
	return m.int(key)
}

func (m *metadata) float(key string) float64 {
	v, name, found := m.lookup(key)
	f, ok := v.Float()
	switch {
	case !found:
		m.fail(fmt.Errorf("%w: metadata has no %s", ErrModel, name))
	case !ok:
		m.fail(fmt.Errorf("%w: %s is %v, want a float", ErrModel, name, v))
	}
	return f
}

// readConfig reads the hyper-parameters, but for the vocabulary's size.
func readConfig(file *gguf.File) (Config, error) {
	arch, _ := file.Meta("general.architecture")
	if name, _ := arch.Str(); name != Architecture {
		return Config{}, fmt.Errorf("%w: the model is %q, the reference runner has only %q (use a full engine for others)",
			ErrArchitecture, name, Architecture)
	}
	m := &metadata{file: file}
	c := Config{
		Blocks:       m.int("block_count"),
		Context:      m.int("context_length"),
		Hidden:       m.int("embedding_length"),
		Heads:        m.int("attention.head_count"),
		KVHeads:      m.int("attention.head_count_kv"),
		Experts:      m.int("expert_count"),
		TopK:         m.int("expert_used_count"),
		ExpertHidden: m.int("expert_feed_forward_length"),
		RopeBase:     m.float("rope.freq_base"),
		NormEps:      float32(m.float("attention.layer_norm_rms_epsilon")),
	}
	c.HeadDim = m.intOr("attention.key_length", c.Hidden/max(c.Heads, 1))
	if m.err != nil {
		return Config{}, m.err
	}
	return c, m.unsupported(c)
}

// unsupported reports variations of the architecture that would be computed wrongly.
func (m *metadata) unsupported(c Config) error {
	for _, key := range []string{"attention.value_length", "rope.dimension_count"} {
		if n := m.intOr(key, c.HeadDim); m.err == nil && n != c.HeadDim {
			return fmt.Errorf("%w: %s.%s is %d, only the head width %d is implemented",
				ErrArchitecture, Architecture, key, n, c.HeadDim)
		}
	}
	if v, name, found := m.lookup("rope.scaling.type"); found {
		if kind, _ := v.Str(); kind != "none" {
			return fmt.Errorf("%w: %s is %q, scaled RoPE is not implemented", ErrArchitecture, name, kind)
		}
	}
	if v, name, found := m.lookup("expert_weights_scale"); found {
		if scale, ok := v.Float(); !ok || scale != 0 && scale != 1 {
			return fmt.Errorf("%w: %s is %v, scaled gate weights are not implemented", ErrArchitecture, name, v)
		}
	}
	return m.err
}

// readVocabulary reads what the tokenizer is made of.
func readVocabulary(file *gguf.File) (vocabulary, error) {
	for key, want := range map[string]string{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2"} {
		v, _ := file.Meta(key)
		if got, _ := v.Str(); got != want {
			return vocabulary{}, fmt.Errorf("%w: %s is %q, only %q is implemented", ErrTokenizer, key, got, want)
		}
	}
	var v vocabulary
	var ok bool
	tokens, _ := file.Meta("tokenizer.ggml.tokens")
	if v.tokens, ok = tokens.Strings(); !ok {
		return v, fmt.Errorf("%w: metadata has no list tokenizer.ggml.tokens", ErrTokenizer)
	}
	merges, _ := file.Meta("tokenizer.ggml.merges")
	if v.merges, ok = merges.Strings(); !ok {
		return v, fmt.Errorf("%w: metadata has no list tokenizer.ggml.merges", ErrTokenizer)
	}
	if types, found := file.Meta("tokenizer.ggml.token_type"); found {
		if v.types, ok = types.Ints(); !ok {
			return v, fmt.Errorf("%w: tokenizer.ggml.token_type is %v, want a list of integers", ErrTokenizer, types)
		}
	}
	v.end = -1
	if end, found := file.Meta("tokenizer.ggml.eos_token_id"); found {
		if v.end, ok = end.Int(); !ok {
			return v, fmt.Errorf("%w: tokenizer.ggml.eos_token_id is %v, want a token", ErrTokenizer, end)
		}
	}
	return v, nil
}
