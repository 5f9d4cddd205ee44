package layout_test

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout"
)

// goldenTensors holds the golden store's manifest with the names of source tensors, as
// they were first written. It is never written again.
const goldenTensors = "testdata/golden-tensors-v1"

// tensorsCheckpoint is the golden checkpoint with all that it knows of its tensors.
func tensorsCheckpoint(t testing.TB, fsys *memfs.FS) layout.Checkpoint {
	t.Helper()
	cp := goldenCheckpoint(t, fsys)
	for l := range cp.Layers {
		for i := range cp.Layers[l].Tensors {
			ts := &cp.Layers[l].Tensors[i]
			ts.SourceDims = append(slices.Clone(ts.Dims), 3)
		}
	}
	each := &cp.Layers[0].Tensors[2]
	each.Source, each.SourceDims = "blk.down.{expert}", each.Dims
	for e := range 3 {
		each.Each = append(each.Each, layout.Span{Offset: each.Offset + int64(e)*each.Bytes, Bytes: each.Bytes})
	}
	return cp
}

func TestGoldenTensorsAreStillWrittenAndRead(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the golden manifest names a Unix path")
	}
	fsys := memfs.New(memfs.Options{})
	cp := tensorsCheckpoint(t, fsys)
	report := build(t, fsys, "/golden", cp, layout.PlanOptions{Lanes: make([]layout.LaneSpec, 2), Order: [][]int32{nil, {2, 0, 1}}})
	if report.ID != goldenID {
		t.Errorf("got store %s, want %s: names of tensors do not change what a store holds", report.ID, goldenID)
	}
	got, err := fsys.ReadFile("/golden/manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(goldenTensors, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got another manifest than the golden one:\n%s", got)
	}
	if err := fsys.WriteFile("/golden/manifest.json", want); err != nil {
		t.Fatal(err)
	}
	tensors := open(t, fsys, "/golden", layout.Buffered).Manifest().Source.Tensors
	if len(tensors) != 2 || len(tensors[0]) != 3 || len(tensors[1]) != 2 {
		t.Fatalf("got tensors %+v, want three and two", tensors)
	}
	if down := tensors[0][2]; down.Name != "blk.down.{expert}" || !down.PerExpert() || !slices.Equal(down.Dims, []int64{70, 1}) {
		t.Errorf("got %+v, want one tensor for each expert", down)
	}
	if up := tensors[1][0]; up.Name != "blk.gate_up" || up.PerExpert() || !slices.Equal(up.Dims, []int64{200, 1, 3}) {
		t.Errorf("got %+v, want one tensor for all experts", up)
	}
}

func TestManifestRefusesDamagedTensors(t *testing.T) {
	whole, err := os.ReadFile(filepath.Join(goldenTensors, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		change func([][]layout.ManifestTensor) [][]layout.ManifestTensor
		text   string
	}{
		{"a layer too few", func(x [][]layout.ManifestTensor) [][]layout.ManifestTensor { return x[:1] }, "of 1 layers, want 2"},
		{"a tensor too few", func(x [][]layout.ManifestTensor) [][]layout.ManifestTensor { x[0] = x[0][1:]; return x }, "has 2 source tensors, want 3"},
		{"no name", func(x [][]layout.ManifestTensor) [][]layout.ManifestTensor { x[1][0].Name = ""; return x }, "want a name"},
		{"dimensions", func(x [][]layout.ManifestTensor) [][]layout.ManifestTensor {
			x[1][0].Dims = make([]int64, 9)
			return x
		}, "of 9 dimensions"},
		{"negative", func(x [][]layout.ManifestTensor) [][]layout.ManifestTensor {
			x[1][0].Dims = []int64{-1}
			return x
		}, "dimension of -1"},
	} {
		m, err := layout.DecodeManifest(whole)
		if err != nil {
			t.Fatal(err)
		}
		m.Source.Tensors = test.change(m.Source.Tensors)
		data, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		_, err = layout.DecodeManifest(data)
		wrong{nil, "manifest.json", test.text}.check(t, test.name, err)
	}
}
