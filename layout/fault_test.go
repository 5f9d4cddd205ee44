package layout_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"outrider/internal/faultfs"
	"outrider/internal/memfs"
	"outrider/layout"
)

// stage is a memory file system with a checkpoint, a plan over two drives, and
// faults in front.
type stage struct {
	mem   *memfs.FS
	fault *faultfs.FS
	cp    layout.Checkpoint
	plan  *layout.Plan
}

func newStage(t testing.TB, opts memfs.Options, model modelSpec) *stage {
	t.Helper()
	s := &stage{mem: memfs.New(opts)}
	s.fault = faultfs.New(s.mem)
	mustMkdir(t, s.mem, "/drive")
	s.cp = source(t, s.mem, model)
	s.plan = plan(t, s.cp, layout.PlanOptions{Lanes: []layout.LaneSpec{{}, {Path: "/drive/l1.bin"}}})
	return s
}

func (s *stage) build(ctx context.Context) error {
	_, err := layout.Build(ctx, layout.BuildOptions{FS: s.fault, Dir: "/m", Plan: s.plan, Checkpoint: &s.cp, Parallel: 2})
	return err
}

func TestFailedBuildLeavesNothing(t *testing.T) {
	for _, test := range []struct {
		name string
		rule faultfs.Rule
		want error
		text string
	}{
		{"source fails", faultfs.Rule{Op: faultfs.ReadAt, Name: "a.gguf", From: 4, Kind: faultfs.Fail, Err: syscall.EIO}, syscall.EIO, "from /models/a.gguf"},
		{"source is short", faultfs.Rule{Op: faultfs.ReadAt, Name: "b.gguf", From: 3, To: 3, Kind: faultfs.Short, Bytes: 7}, layout.ErrSourceChanged, "7 of"},
		{"source lies", faultfs.Rule{Op: faultfs.ReadAt, Name: "a.gguf", From: 3, Kind: faultfs.Silent}, layout.ErrSilentRead, "from /models/a.gguf"},
		{"disk is full", faultfs.Rule{Op: faultfs.WriteAt, Name: "l1*", From: 2, Kind: faultfs.Fail, Err: syscall.ENOSPC}, layout.ErrNoSpace, "/drive/l1.bin.building"},
		{"write is short", faultfs.Rule{Op: faultfs.WriteAt, Name: "lane-0*", From: 2, Kind: faultfs.Short, Bytes: 5}, nil, "short write"},
		{"write is lost", faultfs.Rule{Op: faultfs.WriteAt, Name: "lane-0*", From: 2, To: 2, Kind: faultfs.Silent}, nil, "read back"},
		{"last write is lost", faultfs.Rule{Op: faultfs.WriteAt, Name: "l1*", From: 3, Kind: faultfs.Silent}, nil, "read back"},
		{"write flips a bit", faultfs.Rule{Op: faultfs.WriteAt, Name: "l1*", From: 1, To: 1, Kind: faultfs.Flip, Bit: 99}, nil, "read back"},
		{"read back lies", faultfs.Rule{Op: faultfs.ReadAt, Name: "l1*", From: 2, Kind: faultfs.Silent}, nil, "read back"},
		{"sync fails", faultfs.Rule{Op: faultfs.Sync, Name: "lane-0*", Kind: faultfs.Fail}, faultfs.ErrInjected, "sync"},
		{"close fails", faultfs.Rule{Op: faultfs.Close, Name: "l1*", Kind: faultfs.Fail}, faultfs.ErrInjected, ""},
		{"index is changed", faultfs.Rule{Op: faultfs.WriteAt, Name: "index.bin", Kind: faultfs.Flip, Bit: 5000}, nil, "index.bin is damaged"},
		{"manifest is lost", faultfs.Rule{Op: faultfs.WriteAt, Name: "manifest.json", Kind: faultfs.Silent}, layout.ErrNotStore, "read back"},
		{"marker fails", faultfs.Rule{Op: faultfs.Create, Name: "building.json", Kind: faultfs.Fail}, faultfs.ErrInjected, ""},
		{"lane fails", faultfs.Rule{Op: faultfs.Create, Name: "l1*", Kind: faultfs.Fail}, faultfs.ErrInjected, ""},
		{"rename of lane fails", faultfs.Rule{Op: faultfs.Rename, Name: "l1*", Kind: faultfs.Fail}, faultfs.ErrInjected, ""},
		{"rename fails", faultfs.Rule{Op: faultfs.Rename, Name: "m.building", Kind: faultfs.Fail}, faultfs.ErrInjected, ""},
		{"folder's sync fails", faultfs.Rule{Op: faultfs.SyncDir, From: 3, Kind: faultfs.Fail}, faultfs.ErrInjected, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStage(t, memfs.Options{}, smallModel)
			before := s.mem.Names()
			s.fault.Add(test.rule)
			err := s.build(context.Background())
			if err == nil || (test.want != nil && !errors.Is(err, test.want)) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want %v with %q", err, test.want, test.text)
			}
			var damage *layout.CorruptError
			if test.want == nil && test.text == "read back" && !errors.As(err, &damage) {
				t.Errorf("got %v, want a *CorruptError", err)
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

func TestBuildChecksSpaceFirst(t *testing.T) {
	s := newStage(t, memfs.Options{Limit: 150_000}, smallModel)
	err := s.build(context.Background())
	if !errors.Is(err, layout.ErrNoSpace) || !strings.Contains(fmt.Sprint(err), "bytes free, the store needs") {
		t.Errorf("got %v, want ErrNoSpace with the bytes", err)
	}
	if n := s.fault.Calls(faultfs.Mkdir) + s.fault.Calls(faultfs.Create); n != 0 {
		t.Errorf("got %d files made before the check, want 0", n)
	}
}

// liar says that there is space where there is none.
type liar struct{ *memfs.FS }

func (liar) Free(string) (int64, error) { return 1 << 40, nil }

func TestBuildRunsOutOfSpace(t *testing.T) {
	mem := memfs.New(memfs.Options{Limit: 150_000})
	cp := source(t, mem, smallModel)
	before := mem.Names()
	_, err := layout.Build(context.Background(), layout.BuildOptions{FS: liar{mem}, Dir: "/m", Plan: plan(t, cp, layout.PlanOptions{}), Checkpoint: &cp})
	if !errors.Is(err, layout.ErrNoSpace) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want ErrNoSpace", err)
	}
	if got := mem.Names(); !slices.Equal(got, before) {
		t.Errorf("left behind: got %v, want %v", got, before)
	}
}

func TestCancelledBuildLeavesNothing(t *testing.T) {
	for stop := range 12 {
		s := newStage(t, memfs.Options{}, smallModel)
		before := s.mem.Names()
		ctx, cancel := context.WithCancel(context.Background())
		calls := 0
		_, err := layout.Build(ctx, layout.BuildOptions{
			FS: s.fault, Dir: "/m", Plan: s.plan, Checkpoint: &s.cp, Parallel: 1,
			Progress: func(done, total int64) {
				if calls++; calls > 3*stop {
					cancel()
				}
			},
		})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled at call %d: got %v, want context.Canceled", 3*stop, err)
		}
		if got := s.mem.Names(); !slices.Equal(got, before) {
			t.Errorf("left behind: got %v, want %v", got, before)
		}
	}
}

func TestPanicInAWorkerIsAnError(t *testing.T) {
	s := newStage(t, memfs.Options{}, smallModel)
	before := s.mem.Names()
	_, err := layout.Build(context.Background(), layout.BuildOptions{
		FS: s.fault, Dir: "/m", Plan: s.plan, Checkpoint: &s.cp,
		Progress: func(done, total int64) { panic("over the edge") },
	})
	if err == nil || !strings.Contains(err.Error(), "over the edge") {
		t.Errorf("got %v, want the panic's text", err)
	}
	if got := s.mem.Names(); !slices.Equal(got, before) {
		t.Errorf("left behind: got %v, want %v", got, before)
	}
}

func TestBuildNeverReplaces(t *testing.T) {
	for _, taken := range []string{"/m", "/drive/l1.bin", "/drive/l1.bin.building"} {
		s := newStage(t, memfs.Options{}, smallModel)
		if err := s.mem.WriteFile(taken, []byte("precious")); err != nil {
			t.Fatal(err)
		}
		err := s.build(context.Background())
		if !errors.Is(err, layout.ErrExists) || !strings.Contains(err.Error(), taken) || !strings.Contains(err.Error(), "name another target") {
			t.Errorf("%s: got %v, want ErrExists with a remedy", taken, err)
		}
		if data, _ := s.mem.ReadFile(taken); string(data) != "precious" {
			t.Errorf("%s: got %q afterwards, want it untouched", taken, data)
		}
	}
}

func TestUnfinishedBuild(t *testing.T) {
	for _, test := range []struct {
		name    string
		files   map[string]string
		discard bool
		want    error
		text    string
	}{
		{"ours, not to be discarded", map[string]string{"/m.building/building.json": `{"format":"outrider build","lanes":["/drive/l1.bin.building"]}`, "/drive/l1.bin.building": "x"}, false, layout.ErrUnfinished, "discard it"},
		{"ours", map[string]string{"/m.building/building.json": `{"format":"outrider build","lanes":["/drive/l1.bin.building"]}`, "/drive/l1.bin.building": "x", "/m.building/lane-0.bin": "y"}, true, nil, ""},
		{"marker just made", map[string]string{"/m.building/building.json": ""}, true, nil, ""},
		{"of somebody else", map[string]string{"/m.building/notes.txt": "mine"}, true, layout.ErrUnfinished, "no mark of ours"},
		{"marker of others", map[string]string{"/m.building/building.json": `{"format":"x"}`}, true, layout.ErrUnfinished, "no mark of ours"},
		{"names precious files", map[string]string{"/m.building/building.json": `{"format":"outrider build","lanes":["/models/a.gguf"]}`}, true, nil, ""},
	} {
		s := newStage(t, memfs.Options{}, smallModel)
		for name, text := range test.files {
			if err := s.mem.WriteFile(name, []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		_, err := layout.Build(context.Background(), layout.BuildOptions{
			FS: s.mem, Dir: "/m", Plan: s.plan, Checkpoint: &s.cp, DiscardUnfinished: test.discard,
		})
		if !errors.Is(err, test.want) || (test.want != nil && !strings.Contains(err.Error(), test.text)) {
			t.Errorf("%s: got %v, want %v with %q", test.name, err, test.want, test.text)
		}
		if test.want != nil {
			for name := range test.files {
				if _, err := s.mem.Stat(name); err != nil {
					t.Errorf("%s: %s was removed", test.name, name)
				}
			}
		}
		if _, err := s.mem.Stat("/models/a.gguf"); err != nil {
			t.Errorf("%s: the checkpoint was removed", test.name)
		}
	}
}

func TestChangedCheckpointIsRefused(t *testing.T) {
	s := newStage(t, memfs.Options{}, smallModel)
	edit(t, s.mem, "/models/b.gguf", cutOff(1))
	err := s.build(context.Background())
	if !errors.Is(err, layout.ErrSourceChanged) || !strings.Contains(err.Error(), "/models/b.gguf has") {
		t.Errorf("build: got %v, want ErrSourceChanged that names the file", err)
	}
	if _, err := layout.OpenInPlace(s.mem, s.cp, layout.Buffered); !errors.Is(err, layout.ErrSourceChanged) {
		t.Errorf("in place: got %v, want ErrSourceChanged", err)
	}
	other := s.cp
	other.Layers = slices.Clone(other.Layers)
	other.Layers[0] = other.Layers[1]
	_, err = layout.Build(context.Background(), layout.BuildOptions{FS: s.mem, Dir: "/m", Plan: s.plan, Checkpoint: &other})
	if !errors.Is(err, layout.ErrSourceChanged) {
		t.Errorf("another checkpoint than planned: got %v, want ErrSourceChanged", err)
	}
	if err := s.mem.RemoveAll("/models/b.gguf"); err != nil {
		t.Fatal(err)
	}
	if err := s.build(context.Background()); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "b.gguf") {
		t.Errorf("missing file: got %v, want fs.ErrNotExist that names it", err)
	}
}

func TestVerifyReportsUnreadableRecords(t *testing.T) {
	s := newStage(t, memfs.Options{}, smallModel)
	if err := s.build(context.Background()); err != nil {
		t.Fatal(err)
	}
	s.fault.Add(faultfs.Rule{Op: faultfs.ReadAt, Name: "l1.bin", From: 2, To: 2, Kind: faultfs.Fail, Err: syscall.EIO})
	report, err := layout.Verify(context.Background(), layout.VerifyOptions{FS: s.fault, Dir: "/m"})
	if err != nil || report.Found != 1 || !strings.Contains(report.Damages[0].String(), "input/output error") || report.Damages[0].Lane != "/drive/l1.bin" {
		t.Errorf("got %+v and %v, want one unreadable record of /drive/l1.bin", report, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := layout.Verify(ctx, layout.VerifyOptions{FS: s.fault, Dir: "/m"}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want context.Canceled", err)
	}
}
