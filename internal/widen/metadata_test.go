package widen

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout/gguf"
)

// The metadata of the wide model, key by key: kind and value.
func TestMetadata(t *testing.T) {
	m := models["qwen3moe"]
	w := m.writer(t)
	w.Align = 64
	for key, value := range map[string]any{
		"general.name": "small", "general.file_type": uint32(0), "tokenizer.ggml.tokens": []string{"a", "b"}, "tokenizer.ggml.scores": []float32{1, 2},
		"tokenizer.ggml.add_bos_token": true, "qwen3moe.rope.freq_base": float32(100), "split.count": uint16(1), "qwen3moe.some_list": []int8{1, 2},
	} {
		w.Set(key, value)
	}
	_, small, wide := enlarge(t, inMemory(t, w), Options{2, 4})
	changed := map[string]string{
		"qwen3moe.embedding_length":           "uint32 12",
		"qwen3moe.feed_forward_length":        "uint32 28",
		"qwen3moe.expert_feed_forward_length": "uint32 20",
		// Written out, since 12/3 would be wrong.
		"qwen3moe.attention.value_length": "uint32 2",
		"qwen3moe.rope.dimension_count":   "uint32 2",
	}
	for _, key := range slices.Sorted(keysOf(union(small.Keys(), wide.Keys()))) {
		got, want := keyText(wide, key), keyText(small, key)
		if text, ok := changed[key]; ok {
			want = text
		}
		if strings.HasPrefix(key, "split.") {
			want = ""
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
	for _, f := range []*gguf.File{small, wide} {
		if a, _ := f.Meta("general.alignment"); a.String() != "64" {
			t.Errorf("alignment: got %v, want 64", a)
		}
	}
}

func union(lists ...[]string) map[string]bool {
	all := map[string]bool{}
	for _, list := range lists {
		for _, key := range list {
			all[key] = true
		}
	}
	return all
}

// keyText is a key's kind and all of its value.
func keyText(f *gguf.File, key string) string {
	v, ok := f.Meta(key)
	if !ok {
		return ""
	}
	text := fmt.Sprint(v.Kind(), " ", v)
	if list, ok := v.Strings(); ok {
		text += fmt.Sprint(list)
	}
	if list, ok := v.Floats(); ok {
		text += fmt.Sprint(list)
	}
	if list, ok := v.Ints(); ok {
		text += fmt.Sprint(v.Elem(), list)
	}
	return text
}

// Heads that are repeated are counted, also where each layer has a number of its own.
func TestMetadataOfHeads(t *testing.T) {
	m := models["olmoe"]
	m.meta = map[string]any{"attention.head_count_kv": []int32{1, 2}, "feed_forward_length": []uint64{7, 8}}
	_, _, wide := enlarge(t, inMemory(t, m.writer(t)), Options{4, 2})
	for key, want := range map[string]string{
		"olmoe.attention.head_count": "uint32 12", "olmoe.attention.head_count_kv": "array [2 int32]int32 [4 8]",
		"olmoe.feed_forward_length": "array [2 uint64]uint64 [14 16]", "olmoe.attention.key_length": "uint32 2",
	} {
		if got := keyText(wide, key); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
}

// Several files become one, with nothing left of the split.
func TestSplitModel(t *testing.T) {
	w := models["qwen3moe"].writer(t)
	_, _, one := enlarge(t, inMemory(t, w), Options{2, 2})
	fsys := &memfs.ReadOnly{Files: map[string][]byte{}}
	if _, err := w.WriteShards("m", w.Shards(3), func(name string) (closer, error) { return &inFile{fsys: fsys, name: name}, nil }); err != nil {
		t.Fatal(err)
	}
	fsys.Files["small.gguf"] = nil // never opened
	plan, err := New(fsys, gguf.ShardName("m", 1, 3), Options{2, 2})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if _, err := plan.Write(t.Context(), &out, nil); err != nil {
		t.Fatal(err)
	}
	fsys.Files["wide.gguf"] = []byte(out.String())
	wide, err := gguf.Open(fsys, "wide.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if len(wide.Shards()) != 1 || !slices.Equal(wide.Keys(), one.Keys()) {
		t.Errorf("got %d files with keys %v, want 1 with %v", len(wide.Shards()), wide.Keys(), one.Keys())
	}
	for _, tensor := range one.Tensors() {
		want, _ := floats(t, one, tensor.Name)
		if got, _ := floats(t, wide, tensor.Name); !slices.Equal(got, want) {
			t.Errorf("%s: not as from one file", tensor.Name)
		}
	}
}
