package layout_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"outrider/internal/faultfs"
	"outrider/internal/memfs"
	"outrider/layout"
)

// killCase is a build that is killed at many moments.
type killCase struct {
	name  string
	model modelSpec
	plan  layout.PlanOptions
	seeds uint64 // states of the device that are tried for each moment
}

// cutLayer has the smallest records that are cut over lanes.
var cutLayer = []tensorSpec{{"gate", 270 << 10, false}, {"down", 262 << 10, true}}

var killCases = []killCase{
	{"one lane", smallModel, layout.PlanOptions{}, 2},
	{"lanes elsewhere", smallModel, layout.PlanOptions{Lanes: []layout.LaneSpec{{}, {Path: "/drive/l1.bin"}, {Path: "/drive/l2.bin"}}}, 2},
	{"two lanes", smallModel, layout.PlanOptions{Lanes: []layout.LaneSpec{{}, {Path: "/drive/l1.bin"}}}, 1},
	{"cut records with copies", modelSpec{experts: 2, topK: 1, layers: [][]tensorSpec{cutLayer, smallLayer}}, layout.PlanOptions{
		Lanes:  []layout.LaneSpec{{}, {Path: "/drive/l1.bin"}, {Path: "/other/l2.bin"}},
		Copies: layout.CopiesOptions{Bytes: 8 << 20},
	}, 1},
}

// begin makes the file system before the build.
func (k killCase) begin(t testing.TB) (*memfs.FS, layout.Checkpoint, *layout.Plan) {
	t.Helper()
	mem := memfs.New(memfs.Options{})
	mustMkdir(t, mem, "/drive", "/other")
	cp := source(t, mem, k.model)
	return mem, cp, plan(t, cp, k.plan)
}

// built is all files of a memory file system but the checkpoint, by name.
func built(t testing.TB, mem *memfs.FS) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range mem.Names() {
		if strings.HasPrefix(name, sourceDir) {
			continue
		}
		if data, err := mem.ReadFile(name); err == nil {
			out[name] = string(data)
		}
	}
	return out
}

// TestKilledBuildIsResumed: killed at any of its operations, with writes lost that
// were not synced, a build leaves nothing, the store, or what is resumed to the same
// store, byte by byte.
func TestKilledBuildIsResumed(t *testing.T) {
	points := 0
	for _, k := range killCases {
		mem, cp, p := k.begin(t)
		whole := faultfs.NewCrash(mem, 0)
		report, err := layout.Build(context.Background(), layout.BuildOptions{FS: whole, Dir: "/m", Plan: p, Checkpoint: &cp})
		if err != nil {
			t.Fatal(err)
		}
		want := built(t, whole.Recover(1)) // all that matters is durable at the end
		// How many operations there are depends on which workers note their records
		// together.
		at := 1
		for k.kill(t, at, report.ID, want) {
			at++
		}
		t.Logf("%s: killed at %d operations", k.name, at-1)
		points += at - 1
	}
	if points < 200 {
		t.Errorf("got %d moments to be killed at, want 200", points)
	}
}

// kill kills a build at an operation and resumes it; false if it has no so many.
func (k killCase) kill(t *testing.T, at int, id string, want map[string]string) bool {
	t.Helper()
	mem, cp, p := k.begin(t)
	crash := faultfs.NewCrash(mem, at)
	_, err := layout.Build(context.Background(), layout.BuildOptions{FS: crash, Dir: "/m", Plan: p, Checkpoint: &cp, Parallel: 2})
	if err == nil {
		k.same(t, fmt.Sprintf("%s, not killed", k.name), crash.Recover(1), want)
		return false
	}
	if !errors.Is(err, faultfs.ErrCrashed) {
		t.Fatalf("%s, killed at %d: got %v, want ErrCrashed", k.name, at, err)
	}
	for seed := range k.seeds {
		name := fmt.Sprintf("%s, killed at operation %d, seed %d", k.name, at, seed)
		left := crash.Recover(seed)
		k.mayBegin(t, name, left, cp, p)
		// Once more: the resumed build is killed too.
		again := faultfs.NewCrash(left, 3+at/2)
		if _, err := layout.Build(context.Background(), layout.BuildOptions{FS: again, Dir: "/m", Plan: p, Checkpoint: &cp, Resume: true}); err == nil {
			k.same(t, name, again.Recover(seed), want)
			continue
		}
		left = again.Recover(seed + 10)
		got, err := layout.Build(context.Background(), layout.BuildOptions{FS: left, Dir: "/m", Plan: p, Checkpoint: &cp, Resume: true})
		if errors.Is(err, layout.ErrExists) && strings.Contains(err.Error(), "/m already exists") {
			continue // the kill came after the store had its name
		}
		if err != nil {
			t.Errorf("%s: resume: %v; left were %v", name, err, left.Names())
			return true
		}
		if got.ID != id {
			t.Errorf("%s: got store %s, want %s", name, got.ID, id)
		}
		k.same(t, name, left, want)
	}
	return true
}

// mayBegin holds what is left to the promise: nothing, the whole store, or a part
// for which both remedies are named.
func (k killCase) mayBegin(t *testing.T, name string, left *memfs.FS, cp layout.Checkpoint, p *layout.Plan) {
	t.Helper()
	_, err := layout.CheckTarget(layout.BuildOptions{FS: left, Dir: "/m", Plan: p, Checkpoint: &cp})
	switch {
	case err == nil:
		for _, n := range left.Names() {
			if strings.Contains(n, "building") {
				t.Errorf("%s: nothing is reported, but %s is left", name, n)
			}
		}
	case errors.Is(err, layout.ErrUnfinished):
		if !strings.Contains(err.Error(), "resume it") || !strings.Contains(err.Error(), "discard it") {
			t.Errorf("%s: got %v, want both remedies", name, err)
		}
	case errors.Is(err, layout.ErrExists):
		report, err := layout.Verify(context.Background(), layout.VerifyOptions{FS: left, Dir: "/m", Source: &cp})
		if err != nil || !report.OK() {
			t.Errorf("%s: there is a store, but %v, %+v", name, err, report)
		}
	default:
		t.Errorf("%s: got %v", name, err)
	}
}

func (k killCase) same(t *testing.T, name string, mem *memfs.FS, want map[string]string) {
	t.Helper()
	got := built(t, mem)
	if !maps.Equal(got, want) {
		t.Errorf("%s: got files %v, want %v with the same bytes", name, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}
