package layout_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout"
)

func direct(n int) memfs.Options {
	return memfs.Options{Align: layout.Alignment{Memory: n, Offset: n}}
}

func TestStoreServesTheCheckpointsBytes(t *testing.T) {
	backwards := []int32{4, 3, 2, 1, 0}
	twoDrives := []layout.LaneSpec{{}, {Path: "/drive1/x-lane.bin", Weight: 2}}
	for _, test := range []struct {
		name  string
		fs    memfs.Options
		model modelSpec
		plan  layout.PlanOptions
		mode  layout.Mode
	}{
		{"small, buffered", memfs.Options{}, smallModel, layout.PlanOptions{}, layout.Buffered},
		{"small, direct 512", direct(512), smallModel, layout.PlanOptions{}, layout.Direct},
		{"small, drive needs more than the store has", direct(16384), smallModel, layout.PlanOptions{Align: 512}, layout.Direct},
		{"small, direct refused", memfs.Options{}, smallModel, layout.PlanOptions{}, layout.Direct},
		{"large, one lane", direct(4096), largeModel, layout.PlanOptions{}, layout.Direct},
		{"few, 2 MiB", direct(4096), fewModel, layout.PlanOptions{Align: 2 << 20}, layout.Direct},
		{"large, two drives", direct(512), largeModel, layout.PlanOptions{Lanes: twoDrives}, layout.Direct},
		{"large, two drives, drives need more", direct(16384), largeModel, layout.PlanOptions{Lanes: twoDrives}, layout.Direct},
		{"large, three lanes, order", direct(4096), largeModel, layout.PlanOptions{Lanes: make([]layout.LaneSpec, 3), Order: [][]int32{backwards, nil, backwards}}, layout.Direct},
	} {
		t.Run(test.name, func(t *testing.T) {
			fsys := memfs.New(test.fs)
			mustMkdir(t, fsys, "/drive1", "/stores")
			cp := source(t, fsys, test.model)
			report := build(t, fsys, "/stores/m", cp, test.plan)
			s := open(t, fsys, "/stores/m", test.mode)
			if s.Manifest().ID != report.ID {
				t.Errorf("id: got %s, want %s", s.Manifest().ID, report.ID)
			}
			sameExperts(t, fsys, cp, s)
			verified, err := layout.Verify(context.Background(), layout.VerifyOptions{FS: fsys, Dir: "/stores/m", Source: &cp})
			if err != nil || !verified.OK() || !verified.Compared {
				t.Fatalf("Verify: got %+v, %v", verified, err)
			}
			for _, name := range fsys.Names() {
				if strings.Contains(name, "building") {
					t.Errorf("left behind: %s", name)
				}
			}
		})
	}
}

func mustMkdir(t testing.TB, fsys *memfs.FS, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := fsys.MkdirAll(name); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCutLaneFallsBackWhereTheDriveNeedsMore(t *testing.T) {
	fsys := memfs.New(direct(16384))
	mustMkdir(t, fsys, "/stores")
	cp := source(t, fsys, largeModel)
	build(t, fsys, "/stores/m", cp, layout.PlanOptions{Lanes: make([]layout.LaneSpec, 2)})
	s := open(t, fsys, "/stores/m", layout.Direct)
	for _, lane := range s.Lanes() {
		if lane.File.Direct() != (layout.Alignment{}) || !strings.Contains(layout.FallbackReason(lane.File), "16384") {
			t.Errorf("%s: got alignment %v, reason %q; want buffered for the alignment's sake", lane.Path, lane.File.Direct(), layout.FallbackReason(lane.File))
		}
	}
	build(t, fsys, "/stores/fit", cp, layout.PlanOptions{Lanes: make([]layout.LaneSpec, 2), Align: 16384})
	s = open(t, fsys, "/stores/fit", layout.Direct)
	if got := s.Lanes()[0].File.Direct().Offset; got != 16384 {
		t.Errorf("store with the drive's alignment: got %d, want direct reads of 16384", got)
	}
	sameExperts(t, fsys, cp, s)
}

func TestInPlaceServesTheCheckpointsBytes(t *testing.T) {
	for _, align := range []int{0, 512, 4096, 16384} {
		for _, model := range []modelSpec{smallModel, largeModel} {
			fsys := memfs.New(direct(align))
			cp := source(t, fsys, model)
			s, err := layout.OpenInPlace(fsys, cp, layout.Direct)
			if err != nil {
				t.Fatal(err)
			}
			sameExperts(t, fsys, cp, s)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestInPlaceMergesNeighbours(t *testing.T) {
	fsys := memfs.New(direct(4096))
	cp := layout.Checkpoint{Shape: layout.Shape{Layers: 1, Experts: 2, TopK: 1}, Files: []layout.CheckpointFile{{Path: "/f", Size: 20000}}}
	if err := fsys.WriteFile("/f", make([]byte, 20000)); err != nil {
		t.Fatal(err)
	}
	each := func(name string, first int64) layout.ExpertTensor {
		return layout.ExpertTensor{Projection: layout.Projection{Name: name, Bytes: 100}, Each: []layout.Span{{Offset: first, Bytes: 100}, {Offset: first + 10000, Bytes: 100}}}
	}
	cp.Layers = []layout.CheckpointLayer{{Tensors: []layout.ExpertTensor{each("gate", 4000), each("up", 4100), each("down", 9000)}}}
	s, err := layout.OpenInPlace(fsys, cp, layout.Direct)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var p layout.Placement
	if err := s.Locate(layout.ExpertID{Index: 1}, &p); err != nil {
		t.Fatal(err)
	}
	want := []layout.Read{{Lane: 0, Offset: 12288, Bytes: 8192, At: 0, Need: 20000 - 12288}}
	if !slices.Equal(p.Reads, want) || p.Bytes != 8192 || p.Parts[2].At != 19000-12288 {
		t.Errorf("got %+v, want one read %+v", p, want)
	}
}

func TestManyLanesHoldTheSameBytesAsOne(t *testing.T) {
	fsys := memfs.New(memfs.Options{})
	mustMkdir(t, fsys, "/s")
	cp := source(t, fsys, largeModel)
	build(t, fsys, "/s/one", cp, layout.PlanOptions{})
	build(t, fsys, "/s/many", cp, layout.PlanOptions{Lanes: []layout.LaneSpec{{Weight: 3}, {Weight: 2}, {Weight: 1}}})
	one, many := open(t, fsys, "/s/one", layout.Buffered), open(t, fsys, "/s/many", layout.Buffered)
	cut := 0
	for i := range cp.Shape.Count() {
		id := cp.Shape.ID(i)
		a, b := readExpert(t, one, id), readExpert(t, many, id)
		if !slices.EqualFunc(a, b, slices.Equal) {
			t.Errorf("%v: lanes hold other bytes", id)
		}
		var p layout.Placement
		if err := many.Locate(id, &p); err != nil {
			t.Fatal(err)
		}
		if len(p.Reads) > 1 {
			cut++
		}
	}
	if cut == 0 {
		t.Error("no record was cut over lanes")
	}
}

func TestBuildIsDeterministic(t *testing.T) {
	fsys := memfs.New(memfs.Options{})
	mustMkdir(t, fsys, "/s")
	cp := source(t, fsys, largeModel)
	for _, dir := range []string{"/s/a", "/s/b"} {
		build(t, fsys, dir, cp, layout.PlanOptions{Lanes: make([]layout.LaneSpec, 2)})
	}
	for _, name := range []string{"manifest.json", "index.bin", "lane-0.bin", "lane-1.bin"} {
		a, _ := fsys.ReadFile(filepath.Join("/s/a", name))
		b, _ := fsys.ReadFile(filepath.Join("/s/b", name))
		if len(a) == 0 || !slices.Equal(a, b) {
			t.Errorf("%s: got other bytes from the second build", name)
		}
	}
	cp2 := cp
	changed, _ := fsys.ReadFile(cp.Files[0].Path)
	changed[len(changed)-1] ^= 1
	if err := fsys.WriteFile(cp.Files[0].Path, changed); err != nil {
		t.Fatal(err)
	}
	build(t, fsys, "/s/c", cp2, layout.PlanOptions{Lanes: make([]layout.LaneSpec, 2)})
	a, c := open(t, fsys, "/s/a", layout.Buffered), open(t, fsys, "/s/c", layout.Buffered)
	if a.Manifest().ID == c.Manifest().ID {
		t.Errorf("stores of other weights have the same id %s", a.Manifest().ID)
	}
}

func TestBuildTellsProgress(t *testing.T) {
	fsys := memfs.New(memfs.Options{})
	cp := source(t, fsys, largeModel)
	p := plan(t, cp, layout.PlanOptions{})
	var last, total atomic.Int64
	_, err := layout.Build(context.Background(), layout.BuildOptions{
		FS: fsys, Dir: "/m", Plan: p, Checkpoint: &cp, Parallel: 1,
		Progress: func(done, all int64) { last.Store(done); total.Store(all) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if last.Load() != 2*p.Bytes() || total.Load() != 2*p.Bytes() {
		t.Errorf("got %d of %d at the end, want %d", last.Load(), total.Load(), 2*p.Bytes())
	}
}

func TestLaneInsideTheStoreMovesWithIt(t *testing.T) {
	fsys := memfs.New(memfs.Options{})
	mustMkdir(t, fsys, "/s")
	cp := source(t, fsys, smallModel)
	build(t, fsys, "/s/m", cp, layout.PlanOptions{Lanes: []layout.LaneSpec{{Path: "/s/m/weights.bin"}}})
	if err := fsys.Rename("/s/m", "/s/moved"); err != nil {
		t.Fatal(err)
	}
	s := open(t, fsys, "/s/moved", layout.Buffered)
	if got := s.Manifest().Lanes[0].Path; got != "weights.bin" {
		t.Errorf("lane: got path %s, want weights.bin", got)
	}
	sameExperts(t, fsys, cp, s)
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

func TestLocateRefusesUnknownExperts(t *testing.T) {
	fsys := memfs.New(memfs.Options{})
	cp := source(t, fsys, smallModel)
	build(t, fsys, "/m", cp, layout.PlanOptions{})
	inPlace, err := layout.OpenInPlace(fsys, cp, layout.Buffered)
	if err != nil {
		t.Fatal(err)
	}
	defer inPlace.Close()
	for _, src := range []layout.Source{open(t, fsys, "/m", layout.Buffered), inPlace} {
		for _, id := range []layout.ExpertID{{Layer: 3}, {Index: 6}, {Layer: -1}, {Index: -1}} {
			if err := src.Locate(id, new(layout.Placement)); !errors.Is(err, layout.ErrUnknownExpert) {
				t.Errorf("%T %v: got %v, want ErrUnknownExpert", src, id, err)
			}
		}
	}
}

func TestLocateDoesNotAllocate(t *testing.T) {
	fsys := memfs.New(direct(512))
	cp := source(t, fsys, largeModel)
	build(t, fsys, "/m", cp, layout.PlanOptions{Lanes: make([]layout.LaneSpec, 2)})
	s := open(t, fsys, "/m", layout.Direct)
	inPlace, err := layout.OpenInPlace(fsys, cp, layout.Direct)
	if err != nil {
		t.Fatal(err)
	}
	defer inPlace.Close()
	for _, src := range []layout.Source{s, inPlace} {
		p := layout.Placement{Reads: make([]layout.Read, 0, 8), Parts: make([]layout.Part, 0, 8)}
		n := testing.AllocsPerRun(100, func() {
			if err := src.Locate(layout.ExpertID{Layer: 2, Index: 3}, &p); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%T: got %v allocations, want 0", src, n)
		}
	}
}
