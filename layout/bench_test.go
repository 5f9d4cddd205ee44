package layout_test

import (
	"context"
	"fmt"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout"
)

// wideStore is a store of 60 layers with 384 experts, tiny ones: only the
// number of rows matters.
func wideStore(b *testing.B) *memfs.FS {
	b.Helper()
	fsys := memfs.New(memfs.Options{})
	cp := uniform(60, 384, 64, 64, 64)
	if err := fsys.WriteFile("/x", make([]byte, cp.Files[0].Size)); err != nil {
		b.Fatal(err)
	}
	build(b, fsys, "/m", cp, layout.PlanOptions{})
	return fsys
}

func BenchmarkLocate(b *testing.B) {
	s, err := layout.OpenStore(wideStore(b), "/m", layout.Buffered)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	var p layout.Placement
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := s.Locate(s.Shape().ID(i%s.Shape().Count()), &p); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPlanStore60x384(b *testing.B) {
	cp := uniform(60, 384, 2<<20, 2<<20, 2<<20)
	for _, lanes := range []int{1, 4} {
		b.Run(fmt.Sprintf("lanes=%d", lanes), func(b *testing.B) {
			for b.Loop() {
				if _, err := layout.PlanStore(cp, layout.PlanOptions{Lanes: make([]layout.LaneSpec, lanes)}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkBuild is the work of copying, checking and reading back, without a disk.
func BenchmarkBuild(b *testing.B) {
	fsys := memfs.New(memfs.Options{})
	cp := source(b, fsys, largeModel)
	p := plan(b, cp, layout.PlanOptions{})
	b.SetBytes(p.DataBytes)
	for b.Loop() {
		if _, err := layout.Build(context.Background(), layout.BuildOptions{FS: fsys, Dir: "/m", Plan: p, Checkpoint: &cp}); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := fsys.RemoveAll("/m"); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
