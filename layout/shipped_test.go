package layout_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"outrider/layout"
	"outrider/layout/checkpoint"
)

// A store of the shipped model takes at most 2 % more than its experts, all
// files but the router matrices counted, and each expert is one read of each lane that holds a piece.
func TestStoreOfTheShippedModel(t *testing.T) {
	fsys := layout.OS()
	cp, err := checkpoint.Read(fsys, "../testdata/tinymoe/tinymoe-q8_0.gguf")
	if err != nil {
		t.Fatal(err)
	}
	var experts int64
	for _, layer := range cp.Layers {
		for _, tensor := range layer.Tensors {
			experts += tensor.Bytes * int64(cp.Shape.Experts)
		}
	}
	for _, lanes := range []int{1, 3} {
		plan, err := layout.PlanStore(cp, layout.PlanOptions{Lanes: make([]layout.LaneSpec, lanes)})
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "tinymoe.outrider")
		if _, err := layout.Build(t.Context(), layout.BuildOptions{FS: fsys, Dir: dir, Plan: plan, Checkpoint: &cp}); err != nil {
			t.Fatal(err)
		}
		ratio := float64(folderBytes(t, dir)) / float64(experts)
		if ratio > 1.02 {
			t.Errorf("%d lanes: the store takes %.4f x its experts, want at most 1.02", lanes, ratio)
		}
		reads := readsOf(t, fsys, dir)
		if reads != cp.Shape.Count() {
			t.Errorf("%d lanes: %d reads for %d experts, want one each: they are too small to cut", lanes, reads, cp.Shape.Count())
		}
		t.Logf("%d lanes: store bytes %.4f x expert bytes, %d reads for %d experts", lanes, ratio, reads, cp.Shape.Count())
	}
}

func folderBytes(t *testing.T, dir string) (sum int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "router.safetensors" {
			return err
		}
		info, err := os.Stat(name)
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func readsOf(t *testing.T, fsys layout.FS, dir string) (reads int) {
	t.Helper()
	store, err := layout.OpenStore(fsys, dir, layout.Direct)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var place layout.Placement
	for ordinal := range store.Shape().Count() {
		if err := store.Locate(store.Shape().ID(ordinal), &place); err != nil {
			t.Fatal(err)
		}
		reads += len(place.Reads)
	}
	return reads
}
