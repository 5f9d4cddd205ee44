//go:build linux || darwin

package layout_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"outrider/layout"
)

// killedDir names the folder in which a child of TestSIGKILL builds.
const killedDir = "OUTRIDER_TEST_BUILD_DIR"

func killedOptions(t testing.TB, dir string, cp *layout.Checkpoint) layout.BuildOptions {
	p := plan(t, *cp, layout.PlanOptions{Align: 4096, Lanes: []layout.LaneSpec{{}, {Path: filepath.Join(dir, "l1.bin")}}})
	return layout.BuildOptions{Dir: filepath.Join(dir, "m"), Plan: p, Checkpoint: cp}
}

// TestSIGKILLChild is the child: it says each step and goes on when it is told to.
func TestSIGKILLChild(t *testing.T) {
	dir := os.Getenv(killedDir)
	if dir == "" {
		t.Skip("only as a child of TestSIGKILL")
	}
	cp := diskModel(t, dir, largeModel)
	opts := killedOptions(t, dir, &cp)
	opts.Parallel = 1
	opts.Progress = func(done, total int64) {
		fmt.Println("step")
		_, _ = os.Stdin.Read(make([]byte, 1))
	}
	if _, err := layout.Build(context.Background(), opts); err != nil {
		t.Fatal(err)
	}
}

// TestSIGKILL: a process that is killed outright leaves a part that a build resumes
// to the same store.
func TestSIGKILL(t *testing.T) {
	whole := t.TempDir()
	cp := diskModel(t, whole, largeModel)
	report, err := layout.Build(context.Background(), killedOptions(t, whole, &cp))
	if err != nil {
		t.Fatal(err)
	}
	for _, steps := range []int{1, 7, 20, 30} {
		dir := t.TempDir()
		killChild(t, dir, steps)
		cp := diskModel(t, dir, largeModel)
		opts := killedOptions(t, dir, &cp)
		opts.Resume = true
		resumed, err := layout.Build(context.Background(), opts)
		if err != nil || resumed.ID != report.ID {
			t.Errorf("killed at step %d: got %+v and %v, want store %s", steps, resumed, err, report.ID)
			continue
		}
		if steps > 10 && resumed.ReusedRecords == 0 {
			t.Errorf("killed at step %d: got no record kept", steps)
		}
		for _, name := range []string{"m/index.bin", "m/lane-0.bin", "l1.bin"} {
			got, want := killedFile(t, dir, name), killedFile(t, whole, name)
			if !bytes.Equal(got, want) {
				t.Errorf("killed at step %d: %s: got other bytes than an undisturbed build", steps, name)
			}
		}
	}
}

func killedFile(t testing.TB, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// killChild lets a child build so many steps, and kills it.
func killChild(t *testing.T, dir string, steps int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestSIGKILLChild$", "-test.v")
	cmd.Env = append(os.Environ(), killedDir+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for seen := 0; seen < steps && lines.Scan(); {
		if lines.Text() != "step" {
			continue
		}
		if seen++; seen < steps {
			if _, err := in.Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Errorf("the child ended before it was killed at step %d", steps)
	}
	if _, err := os.Stat(filepath.Join(dir, "m")); err == nil {
		t.Errorf("killed at step %d, but the store is there", steps)
	}
}
