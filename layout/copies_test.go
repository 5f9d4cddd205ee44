package layout_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"outrider/internal/faultfs"
	"outrider/internal/memfs"
	"outrider/layout"

	"pgregory.net/rapid"
)

// twoModel is largeModel with fewer experts; the pieces of hugeModel are more than
// is copied at a time.
var (
	twoModel  = modelSpec{experts: 2, topK: 1, layers: [][]tensorSpec{largeLayer, smallLayer}}
	hugeModel = modelSpec{experts: 1, topK: 1, layers: [][]tensorSpec{{{"gate", 8 << 20, false}, {"down", 5 << 20, false}}}}
)

// readCopies is readExpert through the copies of all reads that have one.
func readCopies(t testing.TB, src layout.Source, id layout.ExpertID) (data []byte, copies int) {
	t.Helper()
	var p layout.Placement
	if err := src.Locate(id, &p); err != nil {
		t.Fatalf("Locate %v: %v", id, err)
	}
	buf := slot(p.Bytes)
	for _, r := range p.Reads {
		file, off := src.Lanes()[r.Lane].File, r.Offset
		if r.Copy.Ok {
			if r.Copy.Lane == r.Lane {
				t.Fatalf("%v: read %+v and its copy are on one lane", id, r)
			}
			file, off = src.Lanes()[r.Copy.Lane].Copies, r.Copy.Offset
			copies++
		}
		if a := int64(file.Direct().Offset); a > 0 && (off%a != 0 || r.Bytes%a != 0 || r.At%a != 0) {
			t.Fatalf("%v: read %+v is not aligned to %d", id, r, a)
		}
		if n, err := file.ReadAt(buf[r.At:r.At+r.Bytes], off); int64(n) < r.Need {
			t.Fatalf("%v: copy of read %+v: got %d bytes and error %v, want %d", id, r, n, err, r.Need)
		}
	}
	for _, part := range p.Parts {
		data = append(data, buf[part.At:part.At+part.Bytes]...)
	}
	return data, copies
}

// sameCopies proves that copies serve the same bytes as their originals, and
// returns how many reads have one.
func sameCopies(t testing.TB, src layout.Source) (copies int) {
	t.Helper()
	for i := range src.Shape().Count() {
		id := src.Shape().ID(i)
		got, n := readCopies(t, src, id)
		if !slices.Equal(got, slices.Concat(readExpert(t, src, id)...)) {
			t.Fatalf("%v: copies have other bytes", id)
		}
		copies += n
	}
	return copies
}

// mixedFS is a file system whose /drive demands another alignment than the rest.
type mixedFS struct {
	*memfs.FS
	drive, rest int
}

func (f mixedFS) Open(name string, mode layout.Mode) (layout.File, error) {
	file, err := f.FS.Open(name, layout.Buffered)
	if err != nil || mode == layout.Buffered {
		return file, err
	}
	align := f.rest
	if strings.HasPrefix(name, "/drive") {
		align = f.drive
	}
	return pickyFile{file, layout.Alignment{Memory: align, Offset: align}}, nil
}

type pickyFile struct {
	layout.File
	align layout.Alignment
}

func (f pickyFile) Direct() layout.Alignment { return f.align }

func (f pickyFile) ReadAt(p []byte, off int64) (int, error) {
	if a := f.align.Offset; off%int64(a) != 0 || len(p)%a != 0 {
		return 0, layout.ErrUnaligned
	}
	return f.File.ReadAt(p, off)
}

func TestCopiesServeTheSameBytes(t *testing.T) {
	lanes := []layout.LaneSpec{{}, {Path: "/drive/x.bin", Weight: 2}, {Weight: 1.5}}
	for _, test := range []struct {
		name        string
		model       modelSpec
		drive, rest int
		lanes       []layout.LaneSpec
		align       int64
		budget      int64
	}{
		{"small, all", smallModel, 512, 512, lanes, 0, 1 << 30},
		{"small, some", smallModel, 512, 512, lanes, 0, 200_000},
		{"small, drive needs more", smallModel, 4096, 512, lanes, 0, 1 << 30},
		{"small, drive needs less", smallModel, 512, 4096, lanes, 512, 1 << 30},
		{"small, all need most", smallModel, 16384, 16384, lanes, 512, 1 << 30},
		{"small, one needs most", smallModel, 64 << 10, 512, lanes, 512, 1 << 30},
		{"large, two lanes", twoModel, 4096, 512, lanes[:2], 0, 1 << 30},
		{"large, some", twoModel, 4096, 4096, lanes, 0, 2 << 20},
		{"large, drives need more", twoModel, 16384, 512, lanes, 0, 1 << 30},
		{"large, made for the drives", twoModel, 16384, 16384, lanes, 16384, 1 << 30},
		{"pieces of several chunks", hugeModel, 4096, 512, lanes[:2], 0, 1 << 30},
		{"few, 2 MiB", fewModel, 4096, 512, lanes[:2], 2 << 20, 1 << 30},
	} {
		t.Run(test.name, func(t *testing.T) {
			fsys := mixedFS{memfs.New(memfs.Options{}), test.drive, test.rest}
			mustMkdir(t, fsys.FS, "/drive")
			cp := source(t, fsys.FS, test.model)
			report := build(t, fsys, "/m", cp, layout.PlanOptions{Lanes: test.lanes, Align: test.align, Copies: layout.CopiesOptions{Bytes: test.budget}})
			s := open(t, fsys, "/m", layout.Direct)
			sameExperts(t, fsys.FS, cp, s)
			state := s.Copies()
			if n := sameCopies(t, s); n < report.CopiedRecords || state.Records != report.CopiedRecords || state.Bytes != report.CopyBytes || state.Reason != "" {
				t.Errorf("got %d copies and %+v, want those of %d records in %d bytes", n, state, report.CopiedRecords, report.CopyBytes)
			}
			verified, err := layout.Verify(context.Background(), layout.VerifyOptions{FS: fsys, Dir: "/m", Source: &cp, Parallel: 1})
			if err != nil || !verified.OK() || verified.CopyBytes != report.CopyBytes {
				t.Errorf("Verify: got %+v, %v, want %d bytes of copies checked", verified, err, report.CopyBytes)
			}
			for _, name := range fsys.Names() {
				if strings.Contains(name, "building") {
					t.Errorf("left behind: %s", name)
				}
			}
		})
	}
}

// TestCopiesOfAnyStoreServeTheSameBytes draws models, lanes and drives.
func TestCopiesOfAnyStoreServeTheSameBytes(t *testing.T) {
	size := rapid.OneOf(rapid.Int64Range(1, 9000), rapid.Int64Range(1, 9000), rapid.Int64Range(260<<10, 600<<10))
	aligns := rapid.SampledFrom([]int{512, 4096, 16384, 64 << 10})
	rapid.Check(t, func(r *rapid.T) {
		spec := modelSpec{experts: rapid.IntRange(1, 2).Draw(r, "experts"), topK: 1}
		for range rapid.IntRange(1, 2).Draw(r, "layers") {
			var layer []tensorSpec
			for i, bytes := range rapid.SliceOfN(size, 1, 2).Draw(r, "tensors") {
				layer = append(layer, tensorSpec{fmt.Sprint("p", i), bytes, i == 1})
			}
			spec.layers = append(spec.layers, layer)
		}
		fsys := mixedFS{memfs.New(memfs.Options{}), aligns.Draw(r, "drive"), aligns.Draw(r, "rest")}
		mustMkdir(t, fsys.FS, "/drive")
		cp := source(t, fsys.FS, spec)
		opts := layout.PlanOptions{
			Lanes:  []layout.LaneSpec{{}, {Path: "/drive/x.bin"}, {}},
			Copies: layout.CopiesOptions{Bytes: rapid.SampledFrom([]int64{1 << 20, 1 << 30}).Draw(r, "budget")},
		}
		for i := range opts.Lanes {
			opts.Lanes[i].Weight = rapid.Float64Range(0.1, 3).Draw(r, "weight")
		}
		p, err := layout.PlanStore(cp, opts)
		if errors.Is(err, layout.ErrPlan) && strings.Contains(err.Error(), "too few") {
			return // not even one record fits
		}
		if err == nil {
			_, err = layout.Build(context.Background(), layout.BuildOptions{FS: fsys, Dir: "/m", Plan: p, Checkpoint: &cp, Parallel: 1})
		}
		if err != nil {
			r.Fatal(err)
		}
		s, err := layout.OpenStore(fsys, "/m", layout.Direct)
		if err != nil {
			r.Fatal(err)
		}
		defer s.Close()
		if n := sameCopies(t, s); n < p.CopiedRecords {
			r.Fatalf("got %d copies, want those of %d records", n, p.CopiedRecords)
		}
	})
}

func TestCopiesFallBackWhereTheDriveNeedsMore(t *testing.T) {
	fsys := mixedFS{memfs.New(memfs.Options{}), 16384, 512}
	mustMkdir(t, fsys.FS, "/drive")
	cp := source(t, fsys.FS, smallModel)
	build(t, fsys, "/m", cp, layout.PlanOptions{Lanes: []layout.LaneSpec{{}, {Path: "/drive/x.bin"}}, Align: 512, Copies: layout.CopiesOptions{Bytes: 1 << 30}})
	s := open(t, fsys, "/m", layout.Direct)
	lanes := s.Lanes()
	if lanes[0].Copies.Direct().Offset != 512 {
		t.Errorf("copies on the drive that needs little: got alignment %v, want direct reads", lanes[0].Copies.Direct())
	}
	if reason := layout.FallbackReason(lanes[1].Copies); lanes[1].Copies.Direct() != (layout.Alignment{}) || !strings.Contains(reason, "16384") {
		t.Errorf("copies on the drive that needs more: got alignment %v and reason %q, want buffered reads for the alignment's sake", lanes[1].Copies.Direct(), reason)
	}
	whole, parts := make([]byte, 300), [][]byte{make([]byte, 100), make([]byte, 200)}
	if _, err := lanes[1].Copies.ReadAt(whole, 4096); err != nil {
		t.Fatal(err)
	}
	// What stands in for a direct file takes several buffers as well.
	if n, err := lanes[1].Copies.(layout.VectorFile).ReadVAt(parts, 4096); n != 300 || err != nil || !slices.Equal(whole, slices.Concat(parts...)) {
		t.Errorf("read of two buffers: got %d bytes and %v, want the 300 bytes of one read", n, err)
	}
	if lanes[1].File.Direct().Offset != 16384 {
		t.Errorf("lane on that drive: got alignment %v, want direct reads", lanes[1].File.Direct())
	}
}

func TestLocateOfCopiesDoesNotAllocate(t *testing.T) {
	_, s, _ := copiesStage(t, largeModel)
	p := layout.Placement{Reads: make([]layout.Read, 0, 8), Parts: make([]layout.Part, 0, 8)}
	n := testing.AllocsPerRun(100, func() {
		if err := s.Locate(layout.ExpertID{Layer: 2, Index: 3}, &p); err != nil || !p.Reads[0].Copy.Ok {
			t.Fatalf("got %+v and %v, want a read with a copy", p, err)
		}
	})
	if n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}

// copiesStage is a stage whose plan has copies of everything, and the store.
func copiesStage(t testing.TB, model modelSpec) (*stage, *layout.Store, *layout.BuildReport) {
	t.Helper()
	s := newStage(t, memfs.Options{}, model)
	s.plan = plan(t, s.cp, layout.PlanOptions{Lanes: []layout.LaneSpec{{}, {Path: "/drive/l1.bin"}}, Copies: layout.CopiesOptions{Bytes: 1 << 30}})
	report, err := layout.Build(context.Background(), layout.BuildOptions{FS: s.mem, Dir: "/m", Plan: s.plan, Checkpoint: &s.cp})
	if err != nil {
		t.Fatal(err)
	}
	return s, open(t, s.mem, "/m", layout.Buffered), report
}

func TestFailedBuildOfCopiesLeavesNothing(t *testing.T) {
	const temp, inside = "l1.bin.copies.building", "lane-0.bin.copies"
	for _, test := range []struct {
		name string
		rule faultfs.Rule
		want error
		text string
	}{
		{"disk is full", faultfs.Rule{Op: faultfs.WriteAt, Name: temp, From: 2, Kind: faultfs.Fail, Err: syscall.ENOSPC}, layout.ErrNoSpace, "/drive/l1.bin.copies.building"},
		{"write is short", faultfs.Rule{Op: faultfs.WriteAt, Name: inside, From: 2, Kind: faultfs.Short, Bytes: 5}, nil, "short write"},
		{"write is lost", faultfs.Rule{Op: faultfs.WriteAt, Name: inside, From: 2, To: 2, Kind: faultfs.Silent}, nil, "read back"},
		{"write flips a bit", faultfs.Rule{Op: faultfs.WriteAt, Name: temp, From: 1, To: 1, Kind: faultfs.Flip, Bit: 99}, nil, "read back"},
		{"read back lies", faultfs.Rule{Op: faultfs.ReadAt, Name: temp, From: 2, Kind: faultfs.Silent}, nil, "read back"},
		{"header is lost", faultfs.Rule{Op: faultfs.ReadAt, Name: temp, To: 1, Kind: faultfs.Silent}, nil, "read back"},
		{"sync fails", faultfs.Rule{Op: faultfs.Sync, Name: temp, Kind: faultfs.Fail}, faultfs.ErrInjected, "sync"},
		{"close fails", faultfs.Rule{Op: faultfs.Close, Name: temp, Kind: faultfs.Fail}, faultfs.ErrInjected, ""},
		{"index is changed", faultfs.Rule{Op: faultfs.WriteAt, Name: "copies.bin", Kind: faultfs.Flip, Bit: 5000}, nil, "copies.bin is damaged"},
		{"index fails", faultfs.Rule{Op: faultfs.Create, Name: "copies.bin", Kind: faultfs.Fail}, faultfs.ErrInjected, ""},
		{"copies fail", faultfs.Rule{Op: faultfs.Create, Name: temp, Kind: faultfs.Fail}, faultfs.ErrInjected, ""},
		{"rename of copies fails", faultfs.Rule{Op: faultfs.Rename, Name: temp, Kind: faultfs.Fail}, faultfs.ErrInjected, ""},
		{"rename fails", faultfs.Rule{Op: faultfs.Rename, Name: "m.building", Kind: faultfs.Fail}, faultfs.ErrInjected, ""},
		{"folder's sync fails", faultfs.Rule{Op: faultfs.SyncDir, From: 4, Kind: faultfs.Fail}, faultfs.ErrInjected, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStage(t, memfs.Options{}, smallModel)
			s.plan = plan(t, s.cp, layout.PlanOptions{Lanes: []layout.LaneSpec{{}, {Path: "/drive/l1.bin"}}, Copies: layout.CopiesOptions{Bytes: 1 << 30}})
			before := s.mem.Names()
			s.fault.Add(test.rule)
			err := s.build(context.Background())
			if err == nil || (test.want != nil && !errors.Is(err, test.want)) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want %v with %q", err, test.want, test.text)
			}
			if got := s.mem.Names(); !slices.Equal(got, before) {
				t.Errorf("left behind: got %v, want %v", got, before)
			}
			if opened, closed := s.fault.Calls(faultfs.Open)+s.fault.Calls(faultfs.Create), s.fault.Calls(faultfs.Close); test.rule.Op != faultfs.Create && opened != closed {
				t.Errorf("files: got %d opened and %d closed", opened, closed)
			}
			s.fault.Clear()
			if err := s.build(context.Background()); err != nil {
				t.Errorf("second try without the fault: %v", err)
			}
		})
	}
}

func TestBuildOfCopiesChecksSpaceAndNames(t *testing.T) {
	s := newStage(t, memfs.Options{Limit: 230_000}, smallModel)
	if err := s.build(context.Background()); err != nil {
		t.Fatalf("without copies: %v", err)
	}
	s = newStage(t, memfs.Options{Limit: 230_000}, smallModel)
	s.plan = plan(t, s.cp, layout.PlanOptions{Lanes: []layout.LaneSpec{{}, {Path: "/drive/l1.bin"}}, Copies: layout.CopiesOptions{Bytes: 1 << 30}})
	if err := s.build(context.Background()); !errors.Is(err, layout.ErrNoSpace) || s.fault.Calls(faultfs.Mkdir) > 0 {
		t.Errorf("got %v, want ErrNoSpace before anything is written", err)
	}
	for _, taken := range []string{"/drive/l1.bin.copies", "/drive/l1.bin.copies.building"} {
		s := newStage(t, memfs.Options{}, smallModel)
		s.plan = plan(t, s.cp, layout.PlanOptions{Lanes: []layout.LaneSpec{{}, {Path: "/drive/l1.bin"}}, Copies: layout.CopiesOptions{Bytes: 1 << 30}})
		if err := s.mem.WriteFile(taken, []byte("precious")); err != nil {
			t.Fatal(err)
		}
		if err := s.build(context.Background()); !errors.Is(err, layout.ErrExists) || !strings.Contains(err.Error(), taken) {
			t.Errorf("%s: got %v, want ErrExists", taken, err)
		}
	}
}

// TestUnfinishedCopiesAreDiscarded: the marker of a killed build names its copies.
func TestUnfinishedCopiesAreDiscarded(t *testing.T) {
	s := newStage(t, memfs.Options{}, smallModel)
	s.plan = plan(t, s.cp, layout.PlanOptions{Lanes: []layout.LaneSpec{{}, {Path: "/drive/l1.bin"}}, Copies: layout.CopiesOptions{Bytes: 1 << 30}})
	s.fault.Add(faultfs.Rule{Op: faultfs.Rename, Kind: faultfs.Fail})
	s.fault.Add(faultfs.Rule{Op: faultfs.RemoveAll, Kind: faultfs.Fail}) // as if killed
	if err := s.build(context.Background()); !errors.Is(err, faultfs.ErrInjected) {
		t.Fatalf("got %v, want a build that cannot clean up", err)
	}
	s.fault.Clear()
	if err := s.build(context.Background()); !errors.Is(err, layout.ErrUnfinished) {
		t.Errorf("got %v, want ErrUnfinished", err)
	}
	_, err := layout.Build(context.Background(), layout.BuildOptions{FS: s.mem, Dir: "/m", Plan: s.plan, Checkpoint: &s.cp, DiscardUnfinished: true})
	if err != nil {
		t.Errorf("discarding: %v", err)
	}
	sameCopies(t, open(t, s.mem, "/m", layout.Buffered))
}

func TestBuildAndVerifyTellProgressOfCopies(t *testing.T) {
	s := newStage(t, memfs.Options{}, largeModel)
	s.plan = plan(t, s.cp, layout.PlanOptions{Lanes: make([]layout.LaneSpec, 2), Copies: layout.CopiesOptions{Bytes: 1 << 30}})
	var last, total atomic.Int64
	progress := func(done, all int64) { last.Store(done); total.Store(all) }
	_, err := layout.Build(context.Background(), layout.BuildOptions{FS: s.mem, Dir: "/m", Plan: s.plan, Checkpoint: &s.cp, Parallel: 1, Progress: progress})
	if err != nil {
		t.Fatal(err)
	}
	want := s.plan.Bytes()
	for _, lane := range s.plan.Lanes {
		want += lane.CopySize
	}
	if last.Load() != 2*want || total.Load() != 2*want {
		t.Errorf("build: got %d of %d at the end, want %d", last.Load(), total.Load(), 2*want)
	}
	if _, err := layout.Verify(context.Background(), layout.VerifyOptions{FS: s.mem, Dir: "/m", Parallel: 1, Progress: progress}); err != nil {
		t.Fatal(err)
	}
	if last.Load() != total.Load() || last.Load() > want || last.Load() < want-2*64 {
		t.Errorf("verify: got %d of %d at the end, want %d without the headers of the copies", last.Load(), total.Load(), want)
	}
}

func TestLaneMovesWithItsCopies(t *testing.T) {
	s, _, report := copiesStage(t, smallModel)
	for _, name := range []string{"l1.bin", "l1.bin.copies"} {
		if err := s.mem.Rename("/drive/"+name, "/m/"+name); err != nil {
			t.Fatal(err)
		}
	}
	moved := open(t, s.mem, "/m", layout.Buffered)
	if got := moved.Copies(); got.Records != report.CopiedRecords || got.Lanes[1].Path != "/m/l1.bin.copies" {
		t.Errorf("got %+v, want the copies in the store's folder", got)
	}
	// Only the lane moves back: its copies are found in the folder.
	if err := s.mem.Rename("/m/l1.bin", "/drive/l1.bin"); err != nil {
		t.Fatal(err)
	}
	if got := open(t, s.mem, "/m", layout.Buffered).Copies(); got.Records != report.CopiedRecords {
		t.Errorf("got %+v, want the copies in the store's folder", got)
	}
}

func TestOpenStoreClosesItsCopies(t *testing.T) {
	s, _, _ := copiesStage(t, smallModel)
	store, err := layout.OpenStore(s.fault, "/m", layout.Direct)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.Close(), store.Close()); err != nil {
		t.Error(err)
	}
	if opened, closed := s.fault.Calls(faultfs.Open), s.fault.Calls(faultfs.Close); opened != closed || opened != 3+4 {
		t.Errorf("got %d files opened and %d closed, want 3 small ones, 2 lanes and 2 files of copies", opened, closed)
	}
}
