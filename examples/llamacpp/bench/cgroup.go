package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// groups is the folder in which memory cgroups can be made.
type groups struct {
	dir           string
	limit, events string // files of a group
}

// group is a memory cgroup with a limit.
type group struct {
	*groups
	dir string
}

// findGroups looks for the process's own memory cgroup below root, "/" outside of
// tests, and proves that a limit can be set there. Version 1 is asked first: where
// both are mounted, it has the memory controller. The error says why there is none.
func findGroups(root string) (*groups, error) {
	membership, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return nil, err
	}
	gs := &groups{limit: "memory.limit_in_bytes", events: "memory.oom_control"}
	if own, ok := ownGroup(string(membership), string(mounts), "memory"); ok {
		gs.dir = filepath.Join(root, own)
	} else if own, ok := ownGroup(string(membership), string(mounts), ""); ok {
		gs.limit, gs.events = "memory.max", "memory.events"
		if gs.dir = parentOf(filepath.Join(root, own)); gs.dir == "" {
			return nil, fmt.Errorf("neither %s nor the group above it hands the memory controller down (cgroup.subtree_control)", own)
		}
	} else {
		return nil, errors.New("no memory cgroup of this process is mounted")
	}
	gs.sweep(root)
	const trial = 1 << 30
	g, err := gs.make(trial)
	if err != nil {
		return nil, err
	}
	return gs, g.remove()
}

// parentOf is the group in which version 2 lets one make groups with a limit: its own
// may hold no processes, so it may be the one above.
func parentOf(own string) string {
	for _, dir := range []string{own, filepath.Dir(own)} {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
		if err == nil && slices.Contains(strings.Fields(string(text)), "memory") {
			return dir
		}
	}
	return ""
}

// ownGroup is the folder of the group that the process is in, of the hierarchy with
// that controller; "" is version 2. See cgroups(7) and proc_pid_mountinfo(5).
func ownGroup(membership, mounts, controller string) (string, bool) {
	var at string
	for line := range strings.Lines(membership) { // 4:cpu,memory:/a/b or 0::/a/b
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), controller) {
			at = f[2]
		}
	}
	for line := range strings.Lines(mounts) { // 36 35 0:30 /root /point opts - type source options
		before, after, _ := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if len(left) < 5 || len(right) < 3 {
			continue
		}
		v2 := right[0] == "cgroup2" && controller == ""
		v1 := right[0] == "cgroup" && controller != "" && slices.Contains(strings.Split(right[2], ","), controller)
		rest, below := strings.CutPrefix(at+"/", strings.TrimSuffix(left[3], "/")+"/")
		if at != "" && (v1 || v2) && below && !slices.Contains(strings.Split(rest, "/"), "..") {
			return filepath.Join(left[4], rest), true
		}
	}
	return "", false
}

// groupPrefix is followed by the process that made the group, a dash and a number.
const groupPrefix = "outrider-bench-"

// sweep removes groups of ours that a process left which was killed. One that holds a
// process cannot be removed.
func (gs *groups) sweep(root string) {
	left, _ := filepath.Glob(filepath.Join(gs.dir, groupPrefix+"*-*")) // no bad pattern
	for _, dir := range left {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), groupPrefix), "-")
		if _, err := os.Stat(filepath.Join(root, "proc", owner)); errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(dir) // another may have been quicker
		}
	}
}

// make makes a group, and reads its limit back: some systems accept and ignore it.
func (gs *groups) make(limit int64) (*group, error) {
	dir, err := os.MkdirTemp(gs.dir, fmt.Sprintf("%s%d-", groupPrefix, os.Getpid()))
	if err != nil {
		return nil, err
	}
	g := &group{groups: gs, dir: dir}
	file := filepath.Join(dir, gs.limit)
	if err = os.WriteFile(file, strconv.AppendInt(nil, limit, 10), 0o600); err == nil {
		err = g.proveLimit(file, limit)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	return g, nil
}

func (g *group) proveLimit(file string, limit int64) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	got, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || got > limit || got <= limit-int64(os.Getpagesize()) {
		return fmt.Errorf("%s is %q after %d was written", file, strings.TrimSpace(string(text)), limit)
	}
	return nil
}

// wrap is a command line that enters the group before it becomes the program: nothing
// of the program's is charged elsewhere.
func (g *group) wrap(program string, args []string) []string {
	enter := []string{"/bin/sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(g.dir, "cgroup.procs"), program}
	return append(enter, args...)
}

// killed reports whether the kernel has ended a process of the group for want of memory.
func (g *group) killed() bool {
	text, err := os.ReadFile(filepath.Join(g.dir, g.events))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strings.TrimSpace(n) != "0"
		}
	}
	return false
}

// remove removes the group, whose processes have ended. The kernel tidies up behind
// them for a moment, and tells nobody when it is done.
func (g *group) remove() error {
	const tries, pause = 100, 20 * time.Millisecond
	var err error
	for range tries {
		if err = os.Remove(g.dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		time.Sleep(pause)
	}
	return fmt.Errorf("remove cgroup: %w: remove the folder when its processes have ended", err)
}
