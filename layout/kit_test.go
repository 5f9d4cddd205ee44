package layout_test

import (
	"bytes"
	"context"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"unsafe"

	"outrider/internal/memfs"
	"outrider/layout"
)

// tensorSpec is one projection of a test model.
type tensorSpec struct {
	name  string
	bytes int64
	each  bool // one span an expert instead of one stacked tensor
}

// modelSpec is a test model: the projections of each layer.
type modelSpec struct {
	experts, topK int
	layers        [][]tensorSpec
}

var (
	smallLayer = []tensorSpec{{"gate", 1000, false}, {"up", 1000, true}, {"down", 1100, false}, {"down.bias", 36, true}}
	otherLayer = []tensorSpec{{"gate_up", 3000, true}, {"down", 2500, false}}
	largeLayer = []tensorSpec{{"gate", 300 << 10, false}, {"up", 300<<10 + 52, true}, {"down", 400 << 10, false}}

	smallModel = modelSpec{experts: 6, topK: 2, layers: [][]tensorSpec{smallLayer, otherLayer, smallLayer}}
	fewModel   = modelSpec{experts: 1, topK: 1, layers: [][]tensorSpec{largeLayer, smallLayer}}
	largeModel = modelSpec{experts: 5, topK: 2, layers: [][]tensorSpec{largeLayer, smallLayer, largeLayer}}
)

const sourceDir = "/models"

// source makes the files of a model with random bytes and describes them: two
// shards whose data starts at odd places, tensors spread over both.
func source(t testing.TB, fsys *memfs.FS, spec modelSpec) layout.Checkpoint {
	t.Helper()
	rng := rand.NewChaCha8([32]byte{7, 11})
	shards := [][]byte{make([]byte, 1152), make([]byte, 37)}
	cp := layout.Checkpoint{
		Format: "gguf", Name: "test model", Architecture: "testmoe", RestBytes: 12345,
		Shape: layout.Shape{Layers: len(spec.layers), Experts: spec.experts, TopK: spec.topK},
	}
	add := func(shard int, n int64) int64 {
		at := int64(len(shards[shard]))
		more := make([]byte, n)
		rng.Read(more)
		shards[shard] = append(shards[shard], more...)
		return at
	}
	for l, tensors := range spec.layers {
		var layer layout.CheckpointLayer
		for i, ts := range tensors {
			shard := (l + i) % 2
			et := layout.ExpertTensor{
				Projection: layout.Projection{Name: ts.name, Type: "Q8_0", Dims: []int64{ts.bytes, 1}, Bytes: ts.bytes},
				Source:     "blk." + ts.name, File: shard,
			}
			if ts.each {
				for range spec.experts {
					et.Each = append(et.Each, layout.Span{File: shard, Offset: add(shard, ts.bytes), Bytes: ts.bytes})
					add(shard, 3)
				}
			} else {
				et.Offset = add(shard, ts.bytes*int64(spec.experts))
			}
			layer.Tensors = append(layer.Tensors, et)
		}
		cp.Layers = append(cp.Layers, layer)
	}
	for i, data := range shards {
		path := filepath.Join(sourceDir, []string{"a.gguf", "b.gguf"}[i])
		if err := fsys.WriteFile(path, data); err != nil {
			t.Fatal(err)
		}
		cp.Files = append(cp.Files, layout.CheckpointFile{Path: path, Size: int64(len(data)), Header: "00"})
	}
	return cp
}

// sourceFiles are the bytes of all files of a checkpoint.
func sourceFiles(t testing.TB, fsys *memfs.FS, cp layout.Checkpoint) [][]byte {
	t.Helper()
	var out [][]byte
	for _, f := range cp.Files {
		data, err := fsys.ReadFile(f.Path)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, data)
	}
	return out
}

func plan(t testing.TB, cp layout.Checkpoint, opts layout.PlanOptions) *layout.Plan {
	t.Helper()
	p, err := layout.PlanStore(cp, opts)
	if err != nil {
		t.Fatalf("PlanStore: %v", err)
	}
	return p
}

func build(t testing.TB, fsys layout.WriteFS, dir string, cp layout.Checkpoint, opts layout.PlanOptions) *layout.BuildReport {
	t.Helper()
	report, err := layout.Build(context.Background(), layout.BuildOptions{FS: fsys, Dir: dir, Plan: plan(t, cp, opts), Checkpoint: &cp})
	if err != nil {
		t.Fatalf("Build: %v", err)
	}
	return report
}

func open(t testing.TB, fsys layout.FS, dir string, mode layout.Mode) *layout.Store {
	t.Helper()
	s, err := layout.OpenStore(fsys, dir, mode)
	if err != nil {
		t.Fatalf("OpenStore: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// slot is n bytes on a 64 KiB boundary.
func slot(n int64) []byte {
	const align = 64 << 10
	b := make([]byte, n+align)
	skip := -int64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (align - 1)
	return b[skip : skip+n]
}

// readExpert reads one expert as a runtime does, and holds the source to the
// promises of Placement on the way.
func readExpert(t testing.TB, src layout.Source, id layout.ExpertID) [][]byte {
	t.Helper()
	var p layout.Placement
	if err := src.Locate(id, &p); err != nil {
		t.Fatalf("Locate %v: %v", id, err)
	}
	if p.Bytes%4096 != 0 || p.Bytes > src.SlotBytes(int(id.Layer)) {
		t.Fatalf("%v: slot bytes: got %d, want a multiple of 4096 up to %d", id, p.Bytes, src.SlotBytes(int(id.Layer)))
	}
	buf := slot(p.Bytes)
	for _, r := range p.Reads {
		file := src.Lanes()[r.Lane].File
		if a := int64(file.Direct().Offset); a > 0 && (r.Offset%a != 0 || r.Bytes%a != 0 || r.At%a != 0) {
			t.Fatalf("%v: read %+v is not aligned to %d", id, r, a)
		}
		n, err := file.ReadAt(buf[r.At:r.At+r.Bytes], r.Offset)
		if int64(n) < r.Need || (err != nil && err != io.EOF) {
			t.Fatalf("%v: read %+v: got %d bytes and error %v, want %d", id, r, n, err, r.Need)
		}
	}
	record := src.Record(int(id.Layer))
	if len(p.Parts) != len(record) {
		t.Fatalf("%v: got %d parts, want %d", id, len(p.Parts), len(record))
	}
	var out [][]byte
	for i, part := range p.Parts {
		if part.Bytes != record[i].Bytes {
			t.Fatalf("%v %s: got %d bytes, want %d", id, record[i].Name, part.Bytes, record[i].Bytes)
		}
		data := buf[part.At : part.At+part.Bytes]
		if part.Summed && crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) != part.Sum {
			t.Fatalf("%v %s: checksum differs", id, record[i].Name)
		}
		out = append(out, data)
	}
	return out
}

// sameExperts proves that a source serves every expert byte for byte.
func sameExperts(t testing.TB, fsys *memfs.FS, cp layout.Checkpoint, src layout.Source) {
	t.Helper()
	files := sourceFiles(t, fsys, cp)
	for i := range cp.Shape.Count() {
		id := cp.Shape.ID(i)
		for j, got := range readExpert(t, src, id) {
			span := cp.Layers[id.Layer].Tensors[j].Span(int(id.Index))
			if !bytes.Equal(got, files[span.File][span.Offset:span.Offset+span.Bytes]) {
				t.Fatalf("%v %s: bytes differ from the checkpoint", id, src.Record(int(id.Layer))[j].Name)
			}
		}
	}
}
