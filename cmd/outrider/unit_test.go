package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"outrider/experts"
	"outrider/layout"
	"outrider/layout/gguf"
	"outrider/trace"
)

func TestLaneFlag(t *testing.T) {
	for in, want := range map[string]laneFlag{
		"a.bin": {path: "a.bin"}, "/x/a.bin:2.5": {path: "/x/a.bin", weight: 2.5},
		`C:\x.bin`: {path: `C:\x.bin`}, `C:\x.bin:3`: {path: `C:\x.bin`, weight: 3}, "a:b": {path: "a:b"},
	} {
		var l laneFlag
		if err := l.UnmarshalText([]byte(in)); err != nil || l != want {
			t.Errorf("%q: got %+v, %v, want %+v", in, l, err, want)
		}
	}
	for _, in := range []string{"", "a.bin:0", "a.bin:-1", "a.bin:Inf", "a.bin:NaN"} {
		var l laneFlag
		if err := l.UnmarshalText([]byte(in)); err == nil {
			t.Errorf("%q: got %+v, want an error", in, l)
		}
	}
}

// TestPackages: an error of any package of ours is told without that package's name.
func TestPackages(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}} {{.Name}}", "outrider/cmd/outrider").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	n := 0
	for line := range strings.Lines(string(out)) {
		path, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(path, "outrider/") || name == "main" {
			continue
		}
		n++
		if got := message(t.Context(), errors.New(name+": it failed")); got != "it failed" {
			t.Errorf("%s: got %q, want it without the package's name", path, got)
		}
	}
	if n != len(packages) {
		t.Errorf("the program holds %d packages of ours, %d are listed", n, len(packages))
	}
}

func TestExitStatus(t *testing.T) {
	cases := []struct {
		err  error
		want int
	}{
		{nil, exitDone},
		{wrongError{"x"}, exitWrong},
		{usagef("x"), exitUsage},
		{fs.ErrNotExist, exitInput},
		{layout.ErrNotStore, exitInput},
		{layout.ErrExists, exitInput},
		{&layout.CorruptError{}, exitInput},
		{&gguf.FormatError{Err: gguf.ErrTruncated}, exitInput},
		{&trace.CorruptError{}, exitInput},
		{&trace.TornError{}, exitInput},
		{experts.ErrBelowFloor, exitInput},
		{inputf("x"), exitInput},
		{layout.ErrNoSpace, exitFailed},
		{syscall.ENOSPC, exitFailed},
		{syscall.EIO, exitFailed},
		{errors.New("x"), exitFailed},
		{context.Canceled, exitInterrupted},
	}
	for _, c := range cases {
		err := c.err
		if err != nil {
			err = fmt.Errorf("somewhere: %w", errors.Join(err, nil))
		}
		if got := exitStatus(t.Context(), err); got != c.want {
			t.Errorf("%v: got %d, want %d", err, got, c.want)
		}
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupt signal received"))
	if got := exitStatus(ended, context.Cause(ended)); got != exitInterrupted {
		t.Errorf("interrupted with a cause: got %d, want 130", got)
	}
	if got := message(t.Context(), errors.Join(errors.New("layout: a"), errors.New("b"))); got != "a; b" {
		t.Errorf("message: got %q, want one line without the package", got)
	}
}

func TestProgressLines(t *testing.T) {
	now := time.Unix(0, 0)
	var out bytes.Buffer
	a := &app{stderr: &out, now: func() time.Time { return now }}
	p := a.progress("building", inBytes)
	step := func(seconds int, done int64) string {
		now = time.Unix(int64(seconds), 0)
		out.Reset()
		p.set(done, 100<<20)
		return out.String()
	}
	if got := step(1, 10<<20); got != "" {
		t.Errorf("after 1 s: got %q, want nothing", got)
	}
	if got, want := step(4, 40<<20), "building: 40 %, 40 MiB of 100 MiB, 10 MiB/s, 6s left\n"; got != want {
		t.Errorf("after 4 s: got %q, want %q", got, want)
	}
	if got := step(6, 60<<20); got != "" {
		t.Errorf("2 s later: got %q, want nothing so soon", got)
	}
	if got := step(20, 50<<20); got != "" {
		t.Errorf("overtaken call: got %q, want nothing", got)
	}
	p.finish()

	a.json = true
	p = a.progress("building", inBytes)
	if got := step(90, 50<<20); got != "" {
		t.Errorf("with --json: got %q, want nothing", got)
	}
}

func TestProgressBarOnATerminal(t *testing.T) {
	now := time.Unix(0, 0)
	var out bytes.Buffer
	p := (&app{stderr: &out, now: func() time.Time { return now }}).progress("building", inBytes)
	p.terminal = true
	now = now.Add(3 * time.Second)
	p.set(50, 100)
	if !strings.Contains(out.String(), "building") || !strings.Contains(out.String(), "50%") {
		t.Errorf("got %q, want a bar at 50%%", out.String())
	}
	p.finish()
	p.finish()
}

func TestBlocksText(t *testing.T) {
	for want, ids := range map[string][]int{"": {0, 1, 2}, "1-3": {1, 2, 3}, "0-1 4": {0, 1, 4}} {
		if got := blocksText(layout.Shape{Layers: 3, Experts: 2, TopK: 1, LayerIDs: ids}); got != want {
			t.Errorf("%v: got %q, want %q", ids, got, want)
		}
	}
}
