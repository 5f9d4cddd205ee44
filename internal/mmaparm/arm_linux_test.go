package mmaparm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outrider/layout"

	"golang.org/x/sys/unix"
)

func TestUnlimitedArmFaultsOnce(t *testing.T) {
	store, dir := openDummy(t, largeRecord)
	onDisk(t, dir)
	a := startArm(t, Options{Source: store, Threads: 2})
	if c := a.Conditions(); c.CachedPages != 0 || c.TotalPages != 32<<20/4096 || c.Reason != "" {
		t.Errorf("got %+v, want a cold start of 8192 pages", c)
	}
	if l := a.Limit(); l.Bytes != 0 || !strings.Contains(l.String(), "unlimited: no budget") {
		t.Errorf("got %v, want no limit and why", l)
	}
	first, second := play(t, a, everything()), play(t, a, everything())
	for _, r := range []Result{first, second} {
		if r.Uses != 4 || r.TouchedBytes != 32<<20 || r.Stall <= 0 || r.Took < r.Stall {
			t.Errorf("got %+v, want 4 uses that touch 32 MiB", r)
		}
	}
	if first.MajorFaults == 0 {
		t.Errorf("first pass: got %+v, want major faults", first)
	}
	if second.MajorFaults != 0 || second.ReadBytes > 0 {
		t.Errorf("second pass: got %+v, want nothing read again", second)
	}
	if first.ReadBytes >= 0 && first.ReadBytes < 32<<20 {
		t.Errorf("first pass: got %d bytes read, want at least 32 MiB", first.ReadBytes)
	}
	t.Logf("first %+v\nsecond %+v", first, second)
}

func TestLimitedArmFaultsAgain(t *testing.T) {
	store, dir := openDummy(t, largeRecord)
	onDisk(t, dir)
	a := limited(t, Options{Source: store, BudgetBytes: 8 << 20, Threads: 2})
	group := a.Limit().Group
	first, second := play(t, a, everything()), play(t, a, everything())
	if second.MajorFaults == 0 || second.ReadBytes >= 0 && second.ReadBytes < 16<<20 {
		t.Errorf("second pass: got %+v, want most of 32 MiB read again within 8 MiB", second)
	}
	peak, ok := a.PeakBytes()
	if ok && peak > a.Limit().Bytes+1<<20 { // the kernel counts charges that it takes back at once
		t.Errorf("got a peak of %d bytes, want at most %v", peak, a.Limit())
	}
	t.Logf("%v, %+v, peak %d\nfirst %+v\nsecond %+v", a.Limit(), a.Conditions(), peak, first, second)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(group); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Close %s: got %v, want it gone", group, err)
	}
}

// What fits stays: the limit is not far below the budget.
func TestLimitedArmKeepsItsBudget(t *testing.T) {
	store, dir := openDummy(t, largeRecord)
	onDisk(t, dir)
	a := limited(t, Options{Source: store, BudgetBytes: 16 << 20, Threads: 1})
	few := everything()[:1] // 8 MiB
	play(t, a, few)
	if r := play(t, a, few); r.MajorFaults != 0 {
		t.Errorf("8 MiB within 16: got %+v the second time, want no major faults", r)
	}
}

func TestComputeIsImitated(t *testing.T) {
	store, _ := openDummy(t, smallRecord)
	a := startArm(t, Options{Source: store, Threads: 1})
	uses := []Use{{Layer: 1, Experts: []int32{3}, Before: 2 * time.Millisecond, After: 100 * time.Microsecond}, {Layer: 2, After: time.Millisecond}}
	r := play(t, a, uses)
	if r.Computed < 3100*time.Microsecond || r.Took < r.Computed+r.Stall || r.TouchedBytes != smallRecord {
		t.Errorf("got %+v, want 3.1 ms of compute and one expert touched", r)
	}
	if r := play(t, a, nil); r != (Result{}) {
		t.Errorf("nothing played: got %+v", r)
	}
}

func TestPlayRefusesWhatIsNotThereAndGoesOn(t *testing.T) {
	store, _ := openDummy(t, smallRecord)
	a := startArm(t, Options{Source: store})
	for _, u := range []Use{{Layer: -1}, {Layer: 4}, {Experts: []int32{8}}, {Experts: []int32{-1}}} {
		if _, err := a.Play(t.Context(), []Use{u}); err == nil || !strings.Contains(err.Error(), "use of layer") {
			t.Errorf("%+v: got %v, want an error that names it", u, err)
		}
	}
	if r := play(t, a, everything()); r.Uses != 4 {
		t.Errorf("afterwards: got %+v, want 4 uses", r)
	}
}

// A page that is gone is an error, not the end of the child.
func TestCutFileIsAnError(t *testing.T) {
	store, dir := openDummy(t, smallRecord)
	a := startArm(t, Options{Source: store, Threads: 2})
	lane := filepath.Join(dir, "lane-0.bin")
	if err := os.Truncate(lane, 12*smallRecord); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Play(t.Context(), everything()); err == nil || !strings.Contains(err.Error(), lane) || !strings.Contains(err.Error(), "page at") {
		t.Errorf("got %v, want an error that names %s and a page", err, lane)
	}
	if r := play(t, a, everything()[:1]); r.Uses != 1 {
		t.Errorf("what is left: got %+v, want it played", r)
	}
}

func TestContextEndsAPlay(t *testing.T) {
	store, _ := openDummy(t, smallRecord)
	a := startArm(t, Options{Source: store})
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("enough"))
	defer cancel()
	began := time.Now()
	_, err := a.Play(ctx, []Use{{Before: time.Hour}})
	if err == nil || !strings.Contains(err.Error(), "enough") || time.Since(began) > time.Minute {
		t.Errorf("got %v after %v, want the context's cause at once", err, time.Since(began))
	}
	if _, again := a.Play(t.Context(), everything()); again == nil || again.Error() != err.Error() {
		t.Errorf("afterwards: got %v, want %v again", again, err)
	}
	if _, err := Start(ctx, os.Args[0], []string{"child"}, Options{Source: store}); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("start: got %v, want the context's cause", err)
	}
}

func TestCloseEndsAPlay(t *testing.T) {
	store, _ := openDummy(t, smallRecord)
	a := startArm(t, Options{Source: store})
	ended := make(chan error)
	go func() {
		_, err := a.Play(context.Background(), []Use{{Before: time.Hour}})
		ended <- err
	}()
	for a.mu.TryLock() { // until the play holds it
		a.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	if err := errors.Join(a.Close(), a.Close()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("play: got nil, want an error")
	}
	if _, err := a.Play(context.Background(), everything()); err == nil {
		t.Error("play after Close: got nil, want an error")
	}
}

func TestStartRefusals(t *testing.T) {
	store, dir := openDummy(t, smallRecord)
	start := func(role string, o Options) error {
		a, err := Start(t.Context(), os.Args[0], []string{role}, o)
		if err == nil {
			a.Close()
		}
		return err
	}
	for _, tt := range []struct {
		name string
		role string
		opt  Options
		word string
	}{
		{"no source", "child", Options{}, "need a source"},
		{"budget", "child", Options{Source: store, BudgetBytes: -1}, "-1 bytes"},
		{"large budget", "child", Options{Source: store, BudgetBytes: 1<<63 - 1}, "want 0 to"},
		{"threads", "child", Options{Source: store, Threads: 1000}, "1000 threads"},
		{"a child that lies", "liar", Options{Source: store}, "talk to the child"},
		{"a child that dies", "mute", Options{Source: store}, `exit status 3 (it said "nothing to say")`},
	} {
		if err := start(tt.role, tt.opt); err == nil || !strings.Contains(err.Error(), tt.word) {
			t.Errorf("%s: got %v, want an error that says %q", tt.name, err, tt.word)
		}
	}
	if _, err := Start(t.Context(), filepath.Join(dir, "nothing"), nil, Options{Source: store}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no program: got %v, want %v", err, fs.ErrNotExist)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("too long"))
	defer cancel()
	if _, err := Start(ctx, os.Args[0], []string{"deaf"}, Options{Source: store}); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a child that does not listen: got %v, want the context's cause", err)
	}
	if err := os.Truncate(filepath.Join(dir, "lane-0.bin"), 5); err != nil {
		t.Fatal(err)
	}
	if err := start("child", Options{Source: store}); err == nil || !strings.Contains(err.Error(), "lane-0.bin: it has 5 bytes") {
		t.Errorf("a changed file: got %v, want an error that names it", err)
	}
}

// The kernel ends the child of a parent that was killed, and the next Start
// beside it removes the group that was left.
func TestChildDiesWithItsParent(t *testing.T) {
	_, dir := openDummy(t, smallRecord)
	cmd := exec.Command(os.Args[0], "parent", dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	var group string
	if n, err := fmt.Fscanln(out, &pid, &group); n < 1 {
		t.Fatalf("the parent told nothing: %v", err)
	}
	child, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Skipf("no pidfd to wait with: %v", err)
	}
	defer unix.Close(child)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	fds := []unix.PollFd{{Fd: int32(child), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, 10_000); n != 1 || err != nil {
		t.Fatalf("10 s after its parent the child lives on (%d, %v)", n, err)
	}
	if group == "" {
		t.Skip("no cgroup can be set up here")
	}
	deadline := time.Now().Add(10 * time.Second)
	for _, err = os.Stat(group); err == nil && time.Now().Before(deadline); _, err = os.Stat(group) {
		sweep(filepath.Dir(group)) // may be too early for the kernel
		time.Sleep(10 * time.Millisecond)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("group of a dead parent: got %v, want it swept", err)
	}
}

// In place, the extents of a checkpoint's tensors are touched and no others.
func TestInPlaceExtents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(path, make([]byte, 5*4096), 0o644); err != nil {
		t.Fatal(err)
	}
	var layer layout.CheckpointLayer
	for i, name := range []string{"up", "down"} {
		layer.Tensors = append(layer.Tensors, layout.ExpertTensor{
			Projection: layout.Projection{Name: name, Type: "I8", Dims: []int64{100, 1}, Bytes: 100}, Offset: int64(4090 + 8192*i)})
	}
	src, err := layout.OpenInPlace(layout.OS(), layout.Checkpoint{
		Shape: layout.Shape{Layers: 1, Experts: 1, TopK: 1}, Files: []layout.CheckpointFile{{Path: path, Size: 5 * 4096}},
		Layers: []layout.CheckpointLayer{layer}}, layout.Buffered)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	a := startArm(t, Options{Source: src})
	if r := play(t, a, []Use{{Experts: []int32{0}}}); r.TouchedBytes != 4*4096 {
		t.Errorf("got %d bytes touched, want the 4 pages of 2 tensors that straddle", r.TouchedBytes)
	}
}
