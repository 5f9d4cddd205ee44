package gguf_test

import (
	"errors"
	"os"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout"
	"outrider/layout/gguf"
)

// FuzzOpen: no file may make the reader panic, hang or keep a file open, and
// whatever it accepts must be consistent.
func FuzzOpen(f *testing.F) {
	f.Add(small(f))
	w := checkpoint(4, 2)
	w.Set("strings", []string{"a", "b"})
	w.Set("bools", []bool{true})
	stackedLayer(w, 0)
	add(w, "blk.1.ffn_up.0.weight", gguf.F32, 2, 2)
	b, err := w.Bytes()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	shards := split(f, w, "m", 1, -1)
	f.Add(shards[gguf.ShardName("m", 0, 2)])
	f.Fuzz(func(t *testing.T, data []byte) {
		const path = "m-00001-of-00002.gguf"
		fsys := &memfs.ReadOnly{Files: map[string][]byte{path: data, "m-00002-of-00002.gguf": shards["m-00002-of-00002.gguf"]}}
		file, err := gguf.Open(fsys, path)
		if n := fsys.Opens.Load(); n != 0 {
			t.Fatalf("%d files are still open, want 0", n)
		}
		if err != nil {
			var fe *gguf.FormatError
			if !errors.As(err, &fe) {
				t.Fatalf("got %v, want a FormatError", err)
			}
			return
		}
		decodeAll(file)
		for _, ts := range file.Tensors() {
			if end := ts.Offset + ts.Bytes; ts.Offset < 0 || ts.Bytes < 1 || end > file.Shards()[ts.Shard].Size {
				t.Fatalf("tensor %q lies at %d to %d of %d", ts.Name, ts.Offset, end, file.Shards()[ts.Shard].Size)
			}
			if err := file.ReadTensor(ts, make([]byte, ts.Bytes)); err != nil {
				t.Fatal(err)
			}
		}
		if cp, err := file.Checkpoint(); err == nil {
			checkSpans(t, cp)
		}
	})
}

func decodeAll(file *gguf.File) {
	for _, key := range file.Keys() {
		v, _ := file.Meta(key)
		_ = v.String()
		v.Strings()
		v.Ints()
		v.Floats()
		v.Bools()
	}
}

func checkSpans(t *testing.T, cp layout.Checkpoint) {
	t.Helper()
	if err := cp.Shape.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, l := range cp.Layers {
		for _, et := range l.Tensors {
			for e := range cp.Shape.Experts {
				s := et.Span(e)
				if s.Bytes != et.Bytes || s.Bytes < 1 || s.Offset < 0 || s.Offset+s.Bytes > cp.Files[s.File].Size {
					t.Fatalf("%s of expert %d: span %v, want %d bytes inside the file", et.Name, e, s, et.Bytes)
				}
			}
		}
	}
}

// Real files stay as they are under reading.
func TestOpenLeavesFileUnchanged(t *testing.T) {
	path := dataFile(t, "tinymoe-q8_0.gguf")
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	open(t, layout.OS(), path)
	after, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if before.ModTime() != after.ModTime() || before.Size() != after.Size() {
		t.Errorf("got %v %d bytes, want %v %d", after.ModTime(), after.Size(), before.ModTime(), before.Size())
	}
}
