package mmaparm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// group is a memory cgroup of the arm's own.
type group struct {
	dir   string
	files groupFiles
}

// groupFiles names a version's files.
type groupFiles struct{ limit, peak, events string }

var (
	v1Files = groupFiles{limit: "memory.limit_in_bytes", peak: "memory.max_usage_in_bytes", events: "memory.oom_control"}
	v2Files = groupFiles{limit: "memory.max", peak: "memory.peak", events: "memory.events"}
)

// groupPrefix is followed by the process that made the group, a dash and a number.
const groupPrefix = "outrider-mmap-"

// newGroup makes a cgroup without a limit. The error says why there can be none.
func newGroup() (*group, error) {
	membership, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	parent, files, err := findParent(string(membership), string(mounts), hasMemory)
	if err != nil {
		return nil, err
	}
	sweep(parent)
	dir, err := os.MkdirTemp(parent, fmt.Sprintf("%s%d-", groupPrefix, os.Getpid()))
	if err != nil {
		return nil, err
	}
	return &group{dir: dir, files: files}, nil
}

// findParent finds the folder to make a group in: the process's own memory
// cgroup. In version 2 a group that holds processes has no controllers for
// groups below it (unless it is the root), so there it may be the parent.
func findParent(membership, mounts string, hasMemory func(dir string) bool) (string, groupFiles, error) {
	if own := ownGroup(membership, mounts, false); own != "" {
		return own, v1Files, nil
	}
	own := ownGroup(membership, mounts, true)
	if own == "" {
		return "", groupFiles{}, errors.New("no memory cgroup of this process is mounted")
	}
	for _, dir := range []string{own, filepath.Dir(own)} {
		if hasMemory(dir) {
			return dir, v2Files, nil
		}
	}
	return "", groupFiles{}, fmt.Errorf("neither %s nor its parent has the memory controller for groups below it (cgroup.subtree_control)", own)
}

// hasMemory asks a version 2 group.
func hasMemory(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	return err == nil && strings.Contains(" "+strings.Join(strings.Fields(string(text)), " ")+" ", " memory ")
}

// ownGroup is the folder of the memory cgroup that the process is in; empty if
// it is in none of that version, or cannot see it. Membership has lines like
// "4:memory:/a/b", in version 2 "0::/a/b".
func ownGroup(membership, mounts string, v2 bool) string {
	for line := range strings.Lines(membership) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		if len(f) != 3 || v2 != (f[0] == "0" && f[1] == "") || !v2 && !hasWord(f[1], "memory") {
			continue
		}
		root, point := memoryMount(mounts, v2)
		rest, ok := strings.CutPrefix(f[2], strings.TrimSuffix(root, "/"))
		if point == "" || !ok || rest != "" && rest[0] != '/' || strings.Contains(rest, "/..") {
			return ""
		}
		return filepath.Join(point, rest)
	}
	return ""
}

// memoryMount reads mountinfo: "36 35 0:30 /root /point opts … - type source
// superopts". It returns which part of the hierarchy is mounted, and where.
func memoryMount(mounts string, v2 bool) (root, point string) {
	for line := range strings.Lines(mounts) {
		before, after, ok := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		if v2 && right[0] == "cgroup2" || !v2 && right[0] == "cgroup" && hasWord(right[2], "memory") {
			return left[3], left[4]
		}
	}
	return "", ""
}

func hasWord(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

// sweep removes groups of ours that processes left which are no more. A group
// that holds a process cannot be removed.
func sweep(parent string) {
	left, err := filepath.Glob(filepath.Join(parent, groupPrefix+"*-*"))
	if err != nil {
		return
	}
	for _, dir := range left {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), groupPrefix), "-")
		if pid, err := strconv.Atoi(owner); err == nil && pid > 0 && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			_ = os.Remove(dir) // another may have been quicker
		}
	}
}

// enter moves a process into the group. What it has in memory already stays
// charged where it is.
func (g *group) enter(pid int) error { return g.write("cgroup.procs", int64(pid)) }

// limit sets the limit and reads it back: some systems accept and ignore it.
func (g *group) limit(bytes int64) error {
	if err := g.write(g.files.limit, bytes); err != nil {
		return err
	}
	got, err := g.read(g.files.limit)
	if err != nil {
		return err
	}
	if page := int64(os.Getpagesize()); got > bytes || got < bytes-page {
		return fmt.Errorf("%s is %d after %d was written", filepath.Join(g.dir, g.files.limit), got, bytes)
	}
	return nil
}

func (g *group) peak() (int64, error) { return g.read(g.files.peak) }

// outOfMemory reports whether the kernel has killed a process of the group.
func (g *group) outOfMemory() bool {
	text, err := os.ReadFile(filepath.Join(g.dir, g.files.events))
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

func (g *group) write(name string, n int64) error {
	f, err := os.OpenFile(filepath.Join(g.dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strconv.FormatInt(n, 10))
	return errors.Join(err, f.Close())
}

func (g *group) read(name string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(g.dir, name))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// remove removes the group, whose processes must have ended. The kernel goes on
// tidying up after a process for a moment, and tells nobody when it is done.
func (g *group) remove() error {
	const tries, pause = 100, 10 * time.Millisecond
	var err error
	for range tries {
		if err = os.Remove(g.dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(pause)
	}
	return fmt.Errorf("mmaparm: remove cgroup: %w: remove the folder when its processes have ended", err)
}
