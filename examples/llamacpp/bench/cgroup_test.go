package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const (
	mountsV1 = "30 25 0:26 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu\n" +
		"31 25 0:27 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory\n" +
		"32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	mountsV2   = "29 22 0:25 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	mountsPart = "31 25 0:27 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
)

func TestOwnGroup(t *testing.T) {
	for _, tt := range []struct{ name, membership, mounts, controller, want string }{
		{"version 1", "9:cpu:/x\n4:memory:/a/b\n0::/\n", mountsV1, "memory", "/sys/fs/cgroup/memory/a/b"},
		{"root", "4:memory:/\n", mountsV1, "memory", "/sys/fs/cgroup/memory"},
		{"shared line", "4:cpu,memory:/a\n", mountsV1, "memory", "/sys/fs/cgroup/memory/a"},
		{"container", "4:memory:/docker/ab/c\n", mountsPart, "memory", "/sys/fs/cgroup/memory/c"},
		{"container's own", "4:memory:/docker/ab\n", mountsPart, "memory", "/sys/fs/cgroup/memory"},
		{"another container", "4:memory:/docker/abc\n", mountsPart, "memory", ""},
		{"version 2", "0::/user.slice/a.scope\n", mountsV2, "", "/sys/fs/cgroup/user.slice/a.scope"},
		{"version 2 beside 1", "4:memory:/a\n0::/b\n", mountsV1, "", "/sys/fs/cgroup/unified/b"},
		{"no version 1", "0::/a\n", mountsV2, "memory", ""},
		{"outside of the namespace", "0::/../a\n", mountsV2, "", ""},
		{"not mounted", "4:memory:/a\n", mountsV2, "memory", ""},
		{"nonsense", "a:b\n:::\n\n4:memory\n", "- - -\n\n1 2 - cgroup\n", "memory", ""},
	} {
		got, ok := ownGroup(tt.membership, tt.mounts, tt.controller)
		if got != filepath.FromSlash(tt.want) || ok != (tt.want != "") {
			t.Errorf("%s: got %q %v, want %q", tt.name, got, ok, tt.want)
		}
	}
}

func FuzzOwnGroup(f *testing.F) {
	f.Add("4:memory:/a/b\n0::/\n", mountsV1, "memory")
	f.Add("0::/user.slice/a.scope\n", mountsV2, "")
	f.Fuzz(func(t *testing.T, membership, mounts, controller string) {
		if dir, ok := ownGroup(membership, mounts, controller); ok != (dir != "") {
			t.Errorf("got %q %v", dir, ok)
		}
	})
}

// tree is a root with the files of a process and its group.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// A plain folder keeps what is written, which is all that the trial looks at, but also
// the file itself, so that the trial's folder cannot be removed: that is told.
func TestFindGroups(t *testing.T) {
	const v1, v2 = "4:memory:/a\n0::/\n", "0::/a/b\n"
	for _, tt := range []struct {
		name  string
		files map[string]string
		dir   string
		word  string
	}{
		{"version 1", map[string]string{"proc/self/cgroup": v1, "proc/self/mountinfo": mountsV1, "sys/fs/cgroup/memory/a/tasks": ""}, "sys/fs/cgroup/memory/a", "remove cgroup"},
		{"version 2", map[string]string{"proc/self/cgroup": v2, "proc/self/mountinfo": mountsV2, "sys/fs/cgroup/a/cgroup.subtree_control": "cpu memory\n",
			"sys/fs/cgroup/a/b/cgroup.subtree_control": ""}, "sys/fs/cgroup/a", "remove cgroup"},
		{"no controller", map[string]string{"proc/self/cgroup": v2, "proc/self/mountinfo": mountsV2, "sys/fs/cgroup/a/b/cgroup.subtree_control": "cpu memory_x\n"}, "", "subtree_control"},
		{"not mounted", map[string]string{"proc/self/cgroup": v2, "proc/self/mountinfo": ""}, "", "no memory cgroup"},
		{"no such group", map[string]string{"proc/self/cgroup": v1, "proc/self/mountinfo": mountsV1}, "", "no such file"},
		{"no membership", map[string]string{"proc/self/mountinfo": mountsV1}, "", "no such file"},
		{"no mounts", map[string]string{"proc/self/cgroup": v1}, "", "no such file"},
	} {
		root := tree(t, tt.files)
		gs, err := findGroups(root)
		if err == nil || !strings.Contains(err.Error(), tt.word) {
			t.Errorf("%s: got %v, want an error that says %q", tt.name, err, tt.word)
		}
		if tt.dir != "" && (gs == nil || gs.dir != filepath.Join(root, tt.dir)) {
			t.Errorf("%s: got %+v, want groups in %s", tt.name, gs, tt.dir)
		}
	}
}

func TestSweepRemovesWhatKilledProcessesLeft(t *testing.T) {
	root := tree(t, map[string]string{"proc/7/cgroup": ""})
	gs := &groups{dir: filepath.Join(root, "memory")}
	left := map[string]bool{"outrider-bench-8-1": false, "outrider-bench-7-1": true, "outrider-bench-9": true, "outrider-mmap-8-1": true}
	for name := range left {
		if err := os.MkdirAll(filepath.Join(gs.dir, name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	gs.sweep(root)
	for name, want := range left {
		if _, err := os.Stat(filepath.Join(gs.dir, name)); (err == nil) != want {
			t.Errorf("%s: got %v, want there: %v", name, err, want)
		}
	}
}

func TestGroupFiles(t *testing.T) {
	gs := &groups{dir: t.TempDir(), limit: "memory.max", events: "memory.events"}
	g, err := gs.make(100 << 20)
	if err != nil {
		t.Fatal(err)
	}
	limit := filepath.Join(g.dir, "memory.max")
	if text, err := os.ReadFile(limit); err != nil || string(text) != "104857600" {
		t.Errorf("got limit %q, %v", text, err)
	}
	for text, want := range map[string]bool{"low 0\noom 3\noom_kill 0\n": false, "oom_kill 2\n": true, "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n": true, "": false} {
		if err := os.WriteFile(filepath.Join(g.dir, gs.events), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if got := g.killed(); got != want {
			t.Errorf("%q: got killed %v, want %v", text, got, want)
		}
	}
	for text, word := range map[string]string{"max\n": `"max" after`, "104857601": "after 104857600", "100": "after"} {
		if err := os.WriteFile(limit, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := g.proveLimit(limit, 100<<20); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("limit reads %q: got %v, want an error that says %q", text, err, word)
		}
	}
	if err := errors.Join(os.Remove(limit), os.Remove(filepath.Join(g.dir, gs.events)), g.remove(), g.remove()); err != nil {
		t.Error(err)
	}
	if g.killed() {
		t.Error("a group that is gone: got killed")
	}
}

// The process itself writes its number before it becomes the program.
func TestWrapEntersTheGroup(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no shell")
	}
	g := &group{groups: &groups{}, dir: t.TempDir()}
	line := g.wrap("/bin/sh", []string{"-c", `echo "$$ $1 $2"`, "sh", "two words", "$x"})
	out, err := exec.Command(line[0], line[1:]...).Output()
	if err != nil {
		t.Fatal(err)
	}
	pid, rest, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	entered, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
	if err != nil || strings.TrimSpace(string(entered)) != pid || rest != "two words $x" {
		t.Errorf("got process %q with %q, entered %q %v", pid, rest, entered, err)
	}
	if err := os.RemoveAll(g.dir); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(line[0], line[1:]...).Output(); err == nil || len(out) > 0 {
		t.Errorf("no group: got %q %v, want that the program does not start", out, err)
	}
}

// Where limits can be set, a group really is one.
func TestRealGroup(t *testing.T) {
	gs, err := findGroups("/")
	if err != nil {
		t.Skipf("no memory limit can be set here: %v", err)
	}
	g, err := gs.make(64 << 20)
	if err != nil {
		t.Fatal(err)
	}
	line := g.wrap("cat", []string{"/proc/self/cgroup"})
	out, err := exec.Command(line[0], line[1:]...).Output()
	if err != nil || !strings.Contains(string(out), filepath.Base(g.dir)) {
		t.Errorf("got %q %v, want the group %s", out, err, g.dir)
	}
	if err := g.remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(g.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("afterwards: got %v, want it gone", err)
	}
}
