package layout_test

import (
	"context"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout"
)

// goldenDir holds a store as format version 1 was first written. It is never
// written again: if this test fails, the reader no longer reads old stores.
const goldenDir = "testdata/golden-v1"

// goldenByte is byte k of a projection of the golden store.
func goldenByte(layer, expert, projection int, k int64) byte {
	return byte((int64(layer*31+expert*17+projection*7) + k) % 251)
}

// goldenCheckpoint is what the golden store was built from.
func goldenCheckpoint(t testing.TB, fsys *memfs.FS) layout.Checkpoint {
	t.Helper()
	cp := layout.Checkpoint{
		Format: "gguf", Name: "golden", Architecture: "goldmoe", RestBytes: 777,
		Shape: layout.Shape{Layers: 2, Experts: 3, TopK: 2, LayerIDs: []int{1, 2}},
	}
	data := make([]byte, 96)
	for l, sizes := range [][]int64{{100, 100, 70}, {200, 130}} {
		names := [][]string{{"gate", "up", "down"}, {"gate_up", "down"}}[l]
		var layer layout.CheckpointLayer
		for i, size := range sizes {
			layer.Tensors = append(layer.Tensors, layout.ExpertTensor{
				Projection: layout.Projection{Name: names[i], Type: "Q8_0", Dims: []int64{size, 1}, Bytes: size},
				Source:     "blk." + names[i], Offset: int64(len(data)),
			})
			for e := range 3 {
				for k := range size {
					data = append(data, goldenByte(l, e, i, k))
				}
			}
		}
		cp.Layers = append(cp.Layers, layer)
	}
	if err := fsys.WriteFile("/models/golden.gguf", data); err != nil {
		t.Fatal(err)
	}
	cp.Files = []layout.CheckpointFile{{Path: "/models/golden.gguf", Size: int64(len(data)), Header: "abcdef"}}
	return cp
}

func TestGoldenStoreOpens(t *testing.T) {
	s := open(t, layout.OS(), goldenDir, layout.Buffered)
	m := s.Manifest()
	if m.ID != goldenID || m.Model.Name != "golden" || m.Source.Files[0].Path != "/models/golden.gguf" || m.Align != 512 || m.PaddingBytes != 2*4096-3*(270+330) {
		t.Errorf("manifest: got %+v", m)
	}
	if want := (layout.Shape{Layers: 2, Experts: 3, TopK: 2, LayerIDs: []int{1, 2}}); !s.Shape().Equal(want) {
		t.Errorf("shape: got %+v, want %+v", s.Shape(), want)
	}
	if got := s.Order(1); !slices.Equal(got, []int32{2, 0, 1}) {
		t.Errorf("order of layer 1: got %v, want [2 0 1]", got)
	}
	for i := range s.Shape().Count() {
		id := s.Shape().ID(i)
		for p, data := range readExpert(t, s, id) {
			for k, got := range data {
				if want := goldenByte(int(id.Layer), int(id.Index), p, int64(k)); got != want {
					t.Fatalf("%v projection %d byte %d: got %d, want %d", id, p, k, got, want)
				}
			}
		}
	}
	var p layout.Placement
	if err := s.Locate(layout.ExpertID{Layer: 1, Index: 0}, &p); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.Reads, []layout.Read{goldenRead}) || p.Parts[1] != goldenPart {
		t.Errorf("placement: got %+v, want read %+v and part %+v", p, goldenRead, goldenPart)
	}
	report, err := layout.Verify(context.Background(), layout.VerifyOptions{Dir: goldenDir})
	if err != nil || !report.OK() {
		t.Errorf("Verify: got %+v and %v, want no finding", report, err)
	}
}

// TestGoldenStoreIsStillWritten: today's builder writes the same bytes. A
// change that fails here needs a new format version.
func TestGoldenStoreIsStillWritten(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the golden manifest names a Unix path")
	}
	fsys := memfs.New(memfs.Options{})
	cp := goldenCheckpoint(t, fsys)
	build(t, fsys, "/golden", cp, layout.PlanOptions{Lanes: make([]layout.LaneSpec, 2), Order: [][]int32{nil, {2, 0, 1}}})
	golden := layout.OS()
	for _, name := range []string{"manifest.json", "index.bin", "lane-0.bin", "lane-1.bin"} {
		got, err := fsys.ReadFile(filepath.Join("/golden", name))
		if err != nil {
			t.Fatal(err)
		}
		f, err := golden.Open(filepath.Join(goldenDir, name), layout.Buffered)
		if err != nil {
			t.Fatal(err)
		}
		want := make([]byte, f.Size())
		if _, err := f.ReadAt(want, 0); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if !slices.Equal(got, want) {
			t.Errorf("%s: got other bytes than the golden store has", name)
		}
	}
}

// What the golden store says of itself, and of layer 1 expert 0.
const goldenID = "1e7172b2d1494da4d5974ad5e98845c2"

var (
	goldenRead = layout.Read{Lane: 0, Offset: 1024, Bytes: 512, At: 0, Need: 512}
	goldenPart = layout.Part{At: 256, Bytes: 130, Sum: 0x27babf2a, Summed: true}
)
