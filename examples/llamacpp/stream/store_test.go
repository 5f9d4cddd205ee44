package stream

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"outrider/examples/llamacpp/internal/libtest"
	"outrider/examples/llamacpp/llama"
	"outrider/internal/synthckpt"
	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/layout/gguf"
)

// buildStore lays a model's experts out over some lanes.
func buildStore(t testing.TB, path string, lanes int) string {
	t.Helper()
	cp, err := checkpoint.Read(layout.OS(), path)
	if err != nil {
		t.Fatal(err)
	}
	specs := []layout.LaneSpec{{Weight: 1}}
	for i := 1; i < lanes; i++ {
		specs = append(specs, layout.LaneSpec{Weight: 1, Path: filepath.Join(t.TempDir(), "lane-"+strconv.Itoa(i)+".bin")})
	}
	plan, err := layout.PlanStore(cp, layout.PlanOptions{Lanes: specs})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "model.outrider")
	if _, err := layout.Build(context.Background(), layout.BuildOptions{Dir: dir, Plan: plan, Checkpoint: &cp}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The experts may come from a store, of one lane or two, and the model may be split: all
// the same, bit for bit. The families are those whose experts lie differently: with biases
// and scales, in types that no direct read meets in place, in records of several sizes.
func TestStores(t *testing.T) {
	for _, name := range []string{"tinymoe", "gpt-oss", "qwen3-moe-nvfp4", "qwen3-moe-low-bits", "qwen2-moe"} {
		t.Run(name, func(t *testing.T) {
			path := libtest.Tiny(t)
			if name != "tinymoe" {
				path = family(t, name)
			}
			alone := stockModel(t, path, true)
			tokens := madeUp(alone.Tokens, 20)
			_, e := stock(t, alone, llama.ContextOptions{Tokens: 64})
			want := greedy(t, oneByOne(e), tokens, 12)
			for _, lanes := range []int{1, 2} {
				for _, dense := range []Dense{DenseAnonymous, DenseMapped} {
					m := openModel(t, Options{Path: path, Store: buildStore(t, path, lanes), Dense: dense}, 0.25)
					_, e := newDecoder(t, m, DecoderOptions{ContextOptions: llama.ContextOptions{Tokens: 64}})
					if diff := greedy(t, oneByOne(e), tokens, 12).difference(want); diff != "" {
						t.Errorf("%d lanes, dense %d: %s", lanes, dense, diff)
					}
					st := wellKept(t, name, m.Runtime)
					if len(st.Lanes) != lanes || m.Note != "" {
						t.Errorf("got %d lanes, want %d; note %q", len(st.Lanes), lanes, m.Note)
					}
				}
			}
		})
	}
}

// A split model is named by any of its shards, and gives the same.
func TestSplitModel(t *testing.T) {
	o := synthckpt.Options{Family: "deepseek-v2", Seed: 3, Layers: 4, Experts: 8, TopK: 2, Hidden: 128, FFN: 128}
	whole, split := libtest.Synth(t, o, 1), libtest.Synth(t, o, 3)
	alone := stockModel(t, whole, false)
	tokens := madeUp(alone.Tokens, 20)
	_, e := stock(t, alone, llama.ContextOptions{Tokens: 64})
	want := greedy(t, oneByOne(e), tokens, 12)
	last := strings.Replace(split, "-00001-of-", "-00003-of-", 1)
	if last == split {
		t.Fatalf("%s is not split", split)
	}
	store := buildStore(t, last, 1)
	for _, o := range []Options{{Path: split}, {Path: last}, {Path: last, Dense: DenseMapped}, {Path: split, Store: store}} {
		m := openModel(t, o, 0.25)
		_, e := newDecoder(t, m, DecoderOptions{ContextOptions: llama.ContextOptions{Tokens: 64}})
		if diff := greedy(t, oneByOne(e), tokens, 12).difference(want); diff != "" {
			t.Errorf("%+v: %s", o, diff)
		}
		wellKept(t, o.Path, m.Runtime)
	}
}

// What cannot be opened says why and what to do, and leaves nothing behind.
func TestRefused(t *testing.T) {
	tiny := libtest.Tiny(t)
	other := family(t, "qwen3-moe")
	folder := t.TempDir()
	file := func(name string, b []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	whole, err := os.ReadFile(tiny)
	if err != nil {
		t.Fatal(err)
	}
	left := leftovers(t)
	for _, c := range []struct {
		name  string
		o     Options
		words []string
	}{
		{"nothing there", Options{Path: filepath.Join(folder, "none.gguf")}, []string{"none.gguf"}},
		{"no GGUF", Options{Path: file("text.gguf", []byte("this is no model, but it is long enough to be one"))}, []string{"text.gguf"}},
		{"cut header", Options{Path: file("cut.gguf", whole[:1000])}, []string{"cut.gguf"}},
		{"cut weights", Options{Path: file("short.gguf", whole[:len(whole)-100])}, []string{"short.gguf"}},
		{"no experts", Options{Path: dense(t, folder)}, []string{"dense.gguf", "expert"}},
		{"big-endian", Options{Path: bigEndian(t, folder)}, []string{"big-endian"}},
		{"store of another model", Options{Path: tiny, Store: buildStore(t, other, 1)}, []string{"built from another model", "outrider layout build"}},
		{"store that is none", Options{Path: tiny, Store: folder}, []string{folder}},
		{"budget below the floor", Options{Path: tiny, Budget: func(int64) int64 { return 4096 }}, []string{"4096 bytes given", "229376", "raise the budget"}},
	} {
		m, err := Open(t.Context(), lib(t), c.o)
		if err == nil {
			t.Errorf("%s: opened", c.name)
			closeIt(t, m.Close)
			continue
		}
		for _, w := range c.words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: got %q, want %q in it", c.name, err, w)
			}
		}
		t.Logf("%s: %v", c.name, err)
	}
	left.check(t)
}

// dense writes a model without experts.
func dense(t testing.TB, folder string) string {
	t.Helper()
	var w gguf.Writer
	w.Set("general.architecture", "llama")
	w.TensorBytes("blk.0.ffn_up.weight", gguf.F32, []int64{8, 8}, make([]byte, 256))
	w.TensorBytes("blk.0.ffn_down.weight", gguf.F32, []int64{8, 8}, make([]byte, 256))
	return written(t, folder, "dense.gguf", &w)
}

// bigEndian writes a model for another kind of machine.
func bigEndian(t testing.TB, folder string) string {
	t.Helper()
	w := gguf.Writer{BigEndian: true, Version: 3}
	w.Set("general.architecture", "qwen3moe")
	w.Set("qwen3moe.expert_count", uint32(4))
	w.Set("qwen3moe.expert_used_count", uint32(2))
	w.Set("qwen3moe.block_count", uint32(1))
	for _, name := range []string{"gate", "up", "down"} {
		b := make([]byte, 8*8*4*4)
		binary.BigEndian.PutUint32(b, 0x3f800000)
		w.TensorBytes("blk.0.ffn_"+name+"_exps.weight", gguf.F32, []int64{8, 8, 4}, b)
	}
	return written(t, folder, "big.gguf", &w)
}

func written(t testing.TB, folder, name string, w *gguf.Writer) string {
	t.Helper()
	path := filepath.Join(folder, name)
	b, err := w.Bytes()
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}
