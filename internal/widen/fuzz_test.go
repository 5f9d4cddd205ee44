package widen

import (
	"io"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout/gguf"
)

// FuzzWiden: no file makes planning or writing panic or hang, and what is planned
// can be written and read again.
func FuzzWiden(f *testing.F) {
	for _, name := range []string{"qwen3moe", "qwen2moe", "glm4moe", "llama"} {
		b, err := models[name].writer(f).Bytes()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint8(1), uint8(2))
	}
	f.Fuzz(func(t *testing.T, small []byte, width, ffn uint8) {
		fsys := &memfs.ReadOnly{Files: map[string][]byte{"small.gguf": small}}
		plan, err := New(fsys, "small.gguf", Options{1 << (width % 11), 1 << (ffn % 11)})
		if err != nil || plan.HeaderBytes+plan.TensorBytes > 1<<20 {
			return
		}
		out := &inFile{fsys: fsys, name: "wide.gguf"}
		if _, err := plan.Write(t.Context(), io.Writer(out), nil); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := gguf.Open(fsys, "wide.gguf"); err != nil {
			t.Fatal(err)
		}
	})
}
