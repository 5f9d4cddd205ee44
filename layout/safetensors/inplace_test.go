package safetensors_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"outrider/internal/memfs"
	"outrider/layout"
	"outrider/layout/safetensors"
)

// oddModel is a model of two shards whose headers have no padding and whose expert
// tensors lie at odd offsets: 2 layers of 3 experts, gate of 5001 bytes and down of 4096.
func oddModel() *safetensors.Writer {
	rng := rand.NewChaCha8([32]byte{5})
	w := &safetensors.Writer{Unpadded: true}
	add := func(name, dtype string, n int64) {
		data := make([]byte, n)
		rng.Read(data)
		w.TensorBytes(name, dtype, []int64{n}, data)
	}
	add("embed", "U8", 777)
	for l := range 2 {
		for e := range 3 {
			add(fmt.Sprintf("layers.%d.experts.%d.gate", l, e), "F8_E4M3", 5001)
			add(fmt.Sprintf("layers.%d.experts.%d.down", l, e), "U8", 4096)
		}
		add(fmt.Sprintf("layers.%d.norm", l), "U8", 3)
	}
	return w
}

// describe is the checkpoint that the set is.
func describe(t *testing.T, s *safetensors.Set) layout.Checkpoint {
	t.Helper()
	cp := layout.Checkpoint{Format: "safetensors", Name: "odd", Shape: layout.Shape{Layers: 2, Experts: 3, TopK: 1}, Files: s.Shards()}
	for l := range 2 {
		var layer layout.CheckpointLayer
		for _, part := range []string{"gate", "down"} {
			et := layout.ExpertTensor{Source: "layers." + part}
			for e := range 3 {
				ts, ok := s.Tensor(fmt.Sprintf("layers.%d.experts.%d.%s", l, e, part))
				if !ok {
					t.Fatalf("no %s of expert %d", part, e)
				}
				et.Projection = layout.Projection{Name: part, Type: ts.DType, Dims: ts.Shape, Bytes: ts.Bytes}
				et.Each = append(et.Each, layout.Span{File: ts.Shard, Offset: ts.Offset, Bytes: ts.Bytes})
			}
			layer.Tensors = append(layer.Tensors, et)
		}
		cp.Layers = append(cp.Layers, layer)
	}
	return cp
}

// Experts of files without any alignment are read rightly in place, with direct
// reads of whole pages, on a file system in memory that insists on them and on
// the disk of this machine.
func TestUnalignedTensorsInPlace(t *testing.T) {
	memory := memfs.New(memfs.Options{Align: layout.Alignment{Memory: 4096, Offset: 4096}})
	w := oddModel()
	writeShards(t, memory, "/m", w, []int{6, len(w.CutBytes(1)) - 6})
	disk := t.TempDir()
	for _, name := range memory.Names()[1:] {
		data, err := memory.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(disk, filepath.Base(name)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for dir, fsys := range map[string]layout.FS{"/m": memory, disk: layout.OS()} {
		s, err := safetensors.OpenSet(fsys, dir)
		if err != nil {
			t.Fatal(err)
		}
		odd := 0
		for _, ts := range s.Tensors() {
			odd += int(ts.Offset % 2)
		}
		if odd < 3 {
			t.Errorf("%d tensors lie at odd offsets, want some", odd)
		}
		readInPlace(t, fsys, describe(t, s))
	}
}

// readInPlace reads every expert directly and compares it with the files.
func readInPlace(t *testing.T, fsys layout.FS, cp layout.Checkpoint) {
	t.Helper()
	src, err := layout.OpenInPlace(fsys, cp, layout.Direct)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	t.Logf("%s: alignment %+v", cp.Files[0].Path, src.Lanes()[0].File.Direct())
	var p layout.Placement
	for i := range cp.Shape.Count() {
		id := cp.Shape.ID(i)
		if err := src.Locate(id, &p); err != nil {
			t.Fatal(err)
		}
		slot := aligned(p.Bytes)
		for _, r := range p.Reads {
			if n, err := src.Lanes()[r.Lane].File.ReadAt(slot[r.At:r.At+r.Bytes], r.Offset); int64(n) < r.Need {
				t.Fatalf("%v: read %+v: got %d bytes and %v", id, r, n, err)
			}
		}
		for j, part := range p.Parts {
			span := cp.Layers[id.Layer].Tensors[j].Span(int(id.Index))
			if want := readSpan(t, fsys, cp.Files[span.File].Path, span); !bytes.Equal(slot[part.At:part.At+part.Bytes], want) {
				t.Errorf("%v projection %d differs from the file", id, j)
			}
		}
	}
}

func readSpan(t *testing.T, fsys layout.FS, path string, span layout.Span) []byte {
	t.Helper()
	f, err := fsys.Open(path, layout.Buffered)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data := make([]byte, span.Bytes)
	if n, err := f.ReadAt(data, span.Offset); int64(n) < span.Bytes {
		t.Fatalf("read %s: got %d bytes and %v", path, n, err)
	}
	return data
}

// aligned is n bytes on a page's boundary.
func aligned(n int64) []byte {
	b := make([]byte, n+4096)
	skip := -int64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & 4095
	return b[skip : skip+n]
}
