package layout_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"outrider/internal/faultfs"
	"outrider/internal/memfs"
	"outrider/layout"
)

// killedStage is a build of the stage's plan that crashed late, and what it left.
func killedStage(t testing.TB, model modelSpec, at int) (*stage, *memfs.FS) {
	t.Helper()
	s := newStage(t, memfs.Options{}, model)
	crash := faultfs.NewCrash(s.mem, at)
	_, err := layout.Build(context.Background(), layout.BuildOptions{FS: crash, Dir: "/m", Plan: s.plan, Checkpoint: &s.cp, Parallel: 1})
	if !errors.Is(err, faultfs.ErrCrashed) {
		t.Fatalf("got %v, want a crash", err)
	}
	return s, s.mem // what the process saw: the machine went on
}

func (s *stage) resume(fsys layout.WriteFS) (*layout.BuildReport, error) {
	return layout.Build(context.Background(), layout.BuildOptions{FS: fsys, Dir: "/m", Plan: s.plan, Checkpoint: &s.cp, Resume: true})
}

const lateEnough = 35 // operations: most records are written by then

func TestResumeKeepsWhatHolds(t *testing.T) {
	s, left := killedStage(t, smallModel, lateEnough)
	untouched, err := s.resume(left)
	if err != nil {
		t.Fatal(err)
	}
	if untouched.ReusedRecords < 8 || untouched.ReusedRecords > 17 || untouched.ReusedBytes < 8*3072 || untouched.JournalBytes == 0 {
		t.Errorf("got %+v, want some of 18 records kept", untouched)
	}

	s, left = killedStage(t, smallModel, lateEnough)
	edit(t, left, "/m.building/lane-0.bin", flip(10))
	damaged, err := s.resume(left)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := damaged.ReusedRecords, untouched.ReusedRecords-1; got != want {
		t.Errorf("one byte changed: got %d records kept, want %d", got, want)
	}
	if damaged.ID != untouched.ID {
		t.Errorf("got store %s, want %s", damaged.ID, untouched.ID)
	}
	sameExperts(t, left, s.cp, open(t, left, "/m", layout.Buffered))
}

// TestResumeReadsOnlyWhatIsMissing: a record that is kept is not read from the
// checkpoint again, and not written again.
func TestResumeReadsOnlyWhatIsMissing(t *testing.T) {
	s, left := killedStage(t, smallModel, lateEnough)
	fault := faultfs.New(left)
	report, err := s.resume(fault)
	if err != nil {
		t.Fatal(err)
	}
	whole := newStage(t, memfs.Options{}, smallModel)
	if err := whole.build(context.Background()); err != nil {
		t.Fatal(err)
	}
	saved := whole.fault.Calls(faultfs.WriteAt) - fault.Calls(faultfs.WriteAt)
	if saved < report.ReusedRecords {
		t.Errorf("got %d writes fewer than a whole build, want at least one for each of %d kept records", saved, report.ReusedRecords)
	}
}

func TestResumeRefusesOtherBuilds(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*stage)
		text   string
	}{
		{"file's size", func(s *stage) { s.cp.Files[1].Size++ }, "/models/b.gguf has"},
		{"file's header", func(s *stage) { s.cp.Files[0].Header = "11" }, "/models/a.gguf has another header"},
		{"files", func(s *stage) { s.cp.Files = append(s.cp.Files, s.cp.Files[0]) }, "of 2 files, this one has 3"},
		{"model", func(s *stage) { s.cp.Name = "another" }, "another model"},
		{"tensors", func(s *stage) { s.cp.Layers[0].Tensors[0].Offset++ }, "other tensors"},
		{"alignment", func(s *stage) { s.replan(layout.PlanOptions{Align: 4096, Lanes: stageLanes}) }, "another alignment"},
		{"lanes", func(s *stage) { s.replan(layout.PlanOptions{Lanes: []layout.LaneSpec{{Weight: 3}, stageLanes[1]}}) }, "lane-0.bin (weight 1"},
		{"order", func(s *stage) {
			s.replan(layout.PlanOptions{Lanes: stageLanes, Order: [][]int32{{5, 4, 3, 2, 1, 0}, nil, nil}})
		}, "alignment or other projections"},
		{"copies", func(s *stage) {
			s.replan(layout.PlanOptions{Lanes: stageLanes, Copies: layout.CopiesOptions{Bytes: 1 << 20}})
		}, "other second copies"},
	} {
		s, left := killedStage(t, smallModel, lateEnough)
		before := built(t, left)
		s.cp.Files = append([]layout.CheckpointFile(nil), s.cp.Files...)
		test.change(s)
		_, err := s.resume(left)
		if !errors.Is(err, layout.ErrUnfinished) || !strings.Contains(fmt.Sprint(err), test.text) || !strings.Contains(fmt.Sprint(err), "or discard it") {
			t.Errorf("%s: got %v, want ErrUnfinished with %q and the remedies", test.name, err, test.text)
		}
		if after := built(t, left); len(after) != len(before) {
			t.Errorf("%s: got %d files afterwards, want the %d from before", test.name, len(after), len(before))
		}
	}
}

var stageLanes = []layout.LaneSpec{{}, {Path: "/drive/l1.bin"}}

func (s *stage) replan(opts layout.PlanOptions) {
	p, err := layout.PlanStore(s.cp, opts)
	if err != nil {
		panic(err)
	}
	s.plan = p
}

func TestResumeRefusesWhatItCannotGoOnWith(t *testing.T) {
	s, left := killedStage(t, smallModel, lateEnough)
	both := layout.BuildOptions{FS: left, Dir: "/m", Plan: s.plan, Checkpoint: &s.cp, Resume: true, DiscardUnfinished: true}
	if _, err := layout.Build(context.Background(), both); !errors.Is(err, layout.ErrPlan) {
		t.Errorf("resume and discard: got %v, want ErrPlan", err)
	}
	if _, err := s.resume(writeOnly{left}); !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, layout.ErrUnfinished) {
		t.Errorf("a file system that cannot go on: got %v, want ErrUnsupported", err)
	}
	edit(t, left, "/m.building/building.json", func([]byte) []byte {
		return []byte(`{"format":"outrider build","lanes":["/drive/l1.bin.building"]}`)
	})
	if _, err := s.resume(left); !errors.Is(err, layout.ErrUnfinished) || !strings.Contains(fmt.Sprint(err), "older builder") {
		t.Errorf("a marker without a description: got %v, want ErrUnfinished", err)
	}
}

// writeOnly hides OpenWrite.
type writeOnly struct{ layout.WriteFS }

// TestResumedBuildThatFailsKeepsItsPart: and another resume ends it.
func TestResumedBuildThatFailsKeepsItsPart(t *testing.T) {
	s := newStage(t, memfs.Options{}, smallModel)
	ctx, cancel := context.WithCancel(context.Background())
	calls := 0
	_, err := layout.Build(ctx, layout.BuildOptions{
		FS: s.mem, Dir: "/m", Plan: s.plan, Checkpoint: &s.cp, Parallel: 1, Resume: true,
		Progress: func(done, total int64) {
			if calls++; calls == 20 {
				cancel()
			}
		},
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want context.Canceled", err)
	}
	report, err := s.resume(s.mem)
	if err != nil || report.ReusedRecords == 0 {
		t.Errorf("got %+v and %v, want records of the first build", report, err)
	}
	sameExperts(t, s.mem, s.cp, open(t, s.mem, "/m", layout.Buffered))
}

func TestDiscardAfterAKill(t *testing.T) {
	for _, at := range []int{2, 5, lateEnough} {
		s, left := killedStage(t, smallModel, at)
		_, err := layout.Build(context.Background(), layout.BuildOptions{FS: left, Dir: "/m", Plan: s.plan, Checkpoint: &s.cp, DiscardUnfinished: true})
		if err != nil {
			t.Errorf("killed at %d: %v", at, err)
		}
	}
}

func TestCheckTargetKnowsAllBeforehand(t *testing.T) {
	s := newStage(t, memfs.Options{Limit: 10 << 20}, smallModel)
	before := built(t, s.mem)
	c, err := layout.CheckTarget(layout.BuildOptions{FS: s.mem, Dir: "/m", Plan: s.plan, Checkpoint: &s.cp})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Devices) != 3 || c.Devices[0].Dir != "/" || c.Devices[1].Dir != "/drive" || c.Devices[2].Dir != "/models" {
		t.Fatalf("got %+v, want the target's folder, the lane's and the checkpoint's", c)
	}
	lane := s.plan.Lanes[1].Size
	if d := c.Devices[1]; d.NeedBytes != lane || d.WriteBytes != lane || d.ReadBytes != lane || d.FreeBytes <= 0 ||
		len(d.Files) != 1 || d.Files[0] != (layout.TargetFile{Path: "/drive/l1.bin", Bytes: lane}) {
		t.Errorf("lane elsewhere: got %+v, want %d bytes written and read", d, lane)
	}
	if d := c.Devices[2]; d.NeedBytes != 0 || d.ReadBytes != s.plan.DataBytes {
		t.Errorf("checkpoint: got %+v, want %d bytes read", d, s.plan.DataBytes)
	}
	rates := map[string]float64{"/": 1e9, "/drive": 1, "/models": 1e9}
	if got := c.Seconds(func(d *layout.TargetDevice) float64 { return rates[d.Dir] }); got != float64(2*lane) {
		t.Errorf("got %v s, want the slow lane's %d", got, 2*lane)
	}
	if got := c.Seconds(func(*layout.TargetDevice) float64 { return 0 }); got != 0 {
		t.Errorf("unknown rate: got %v s, want 0", got)
	}
	if after := built(t, s.mem); len(after) != len(before) {
		t.Errorf("something was written: %v", after)
	}

	full := newStage(t, memfs.Options{Limit: 150_000}, smallModel)
	c, err = layout.CheckTarget(layout.BuildOptions{FS: full.mem, Dir: "/m", Plan: full.plan, Checkpoint: &full.cp})
	if !errors.Is(err, layout.ErrNoSpace) || c == nil || c.Devices[0].FreeBytes >= c.Devices[0].NeedBytes {
		t.Errorf("no space: got %+v and %v, want ErrNoSpace with the figures", c, err)
	}

	killed, left := killedStage(t, smallModel, lateEnough)
	c, err = layout.CheckTarget(layout.BuildOptions{FS: left, Dir: "/m", Plan: killed.plan, Checkpoint: &killed.cp})
	if !errors.Is(err, layout.ErrUnfinished) || c == nil || c.Unfinished != "/m.building" {
		t.Errorf("unfinished: got %+v and %v, want ErrUnfinished and its folder", c, err)
	}
	c, err = layout.CheckTarget(layout.BuildOptions{FS: left, Dir: "/m", Plan: killed.plan, Checkpoint: &killed.cp, Resume: true})
	if err != nil || c.Devices[1].NeedBytes >= killed.plan.Lanes[1].Size {
		t.Errorf("resume: got %+v and %v, want less than a whole lane needed", c, err)
	}
}
