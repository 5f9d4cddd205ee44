package experts

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Budget is what AutoBudget chose.
type Budget struct {
	Bytes int64
	// Reason says where the number comes from, for a log or a terminal:
	// "3.6 GiB: cgroup limit /a/b leaves 4.1 GiB, less a reserve of 512 MiB".
	Reason string
}

// The reserve is what AutoBudget leaves to everybody else.
const (
	reserveBytes   = 512 << 20
	reservePercent = 10
)

// limit is one bound on memory and its name in messages.
type limit struct {
	name string
	room int64
}

// autoBudget takes the tightest bound that the files of a Linux system tell.
// fsys is rooted at "/".
func autoBudget(fsys fs.FS) (Budget, error) {
	meminfo, err := readSmall(fsys, "proc/meminfo")
	if err != nil {
		return Budget{}, fmt.Errorf("%w: %w", ErrNoAutoBudget, err)
	}
	available, ok := keyedBytes(meminfo, "MemAvailable:")
	if !ok {
		return Budget{}, fmt.Errorf("%w: /proc/meminfo has no MemAvailable", ErrNoAutoBudget)
	}
	least := limit{name: "available memory is", room: available}
	for _, l := range cgroupLimits(fsys) {
		if l.room < least.room {
			least = l
		}
	}
	reserve := max(reserveBytes, least.room/100*reservePercent)
	if least.room <= reserve {
		return Budget{}, fmt.Errorf("%w: %s %s, which is not more than the reserve of %s",
			ErrNoAutoBudget, least.name, binarySize(least.room), binarySize(reserve))
	}
	b := Budget{Bytes: (least.room - reserve) / pageBytes * pageBytes}
	b.Reason = fmt.Sprintf("%s: %s %s, less a reserve of %s",
		binarySize(b.Bytes), least.name, binarySize(least.room), binarySize(reserve))
	return b, nil
}

// cgroupLimits lists the bounds of the process's memory cgroups and of all
// their ancestors. What cannot be read bounds nothing.
func cgroupLimits(fsys fs.FS) []limit {
	groups, err := readSmall(fsys, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	mounts, _ := readSmall(fsys, "proc/self/mountinfo")
	var limits []limit
	for _, g := range parseCgroups(groups) {
		names := v1Files
		if g.v2 {
			names = v2Files
		}
		mount := findMount(mounts, g.v2)
		for dir := mount.inside(g.path); ; dir = path.Dir(dir) {
			if l, ok := names.room(fsys, path.Join(mount.point, dir)); ok {
				limits = append(limits, limit{name: "cgroup limit " + path.Join(mount.point, dir) + " leaves", room: l})
			}
			if dir == "/" {
				break
			}
		}
	}
	return limits
}

// cgroup is a memory cgroup that the process is in.
type cgroup struct {
	v2   bool
	path string
}

// parseCgroups reads /proc/self/cgroup: "4:memory:/a/b" for version 1,
// "0::/a/b" for version 2; both in a mixed system.
func parseCgroups(text string) []cgroup {
	var groups []cgroup
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		if len(f) != 3 || !strings.HasPrefix(f[2], "/") {
			continue
		}
		v2 := f[0] == "0" && f[1] == ""
		if v2 || hasWord(f[1], "memory") {
			groups = append(groups, cgroup{v2: v2, path: path.Clean(f[2])})
		}
	}
	return groups
}

// cgroupMount is where a hierarchy is mounted, and which part of it.
type cgroupMount struct {
	root  string // path in the hierarchy that is mounted
	point string
}

// inside turns a path of the hierarchy into one below the mount point. In a
// container the path may lie outside of what is mounted: then the mount's own
// root is the nearest group there is.
func (m cgroupMount) inside(p string) string {
	if m.root == "/" {
		return p
	}
	if p == m.root {
		return "/"
	}
	if rest, ok := strings.CutPrefix(p, m.root+"/"); ok {
		return "/" + rest
	}
	return "/"
}

// findMount reads /proc/self/mountinfo: "36 35 0:30 /root /point opts … - type
// source superopts". Without an entry the usual places are assumed.
func findMount(mountinfo string, v2 bool) cgroupMount {
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		if (v2 && right[0] == "cgroup2") || (!v2 && right[0] == "cgroup" && hasWord(right[2], "memory")) {
			return cgroupMount{root: path.Clean("/" + left[3]), point: path.Clean("/" + left[4])}
		}
	}
	if v2 {
		return cgroupMount{root: "/", point: "/sys/fs/cgroup"}
	}
	return cgroupMount{root: "/", point: "/sys/fs/cgroup/memory"}
}

// cgroupFiles names what a version tells. Limits on swap do not matter: what is
// swapped out is not at hand.
type cgroupFiles struct {
	limits                 []string
	usage                  string
	inherited, reclaimable string // keys of memory.stat
}

var (
	// Version 1 tells the least limit of all ancestors too, also of those that
	// a container does not see.
	v1Files = cgroupFiles{
		limits: []string{"memory.limit_in_bytes"}, usage: "memory.usage_in_bytes",
		inherited: "hierarchical_memory_limit", reclaimable: "total_inactive_file",
	}
	// Over memory.high nothing is killed, but everything is slowed down.
	v2Files = cgroupFiles{
		limits: []string{"memory.max", "memory.high"}, usage: "memory.current",
		reclaimable: "inactive_file",
	}
)

// room is what the group's limits leave: the least of them, less what is used
// and cannot be reclaimed at once. Without a usage it is the limit.
func (n cgroupFiles) room(fsys fs.FS, dir string) (int64, bool) {
	dir = strings.TrimPrefix(dir, "/")
	stat, _ := readSmall(fsys, path.Join(dir, "memory.stat"))
	const none = int64(1) << 62
	bound := none
	for _, name := range n.limits {
		text, err := readSmall(fsys, path.Join(dir, name))
		if b, ok := parseLimit(text); err == nil && ok {
			bound = min(bound, b)
		}
	}
	if b, ok := keyedBytes(stat, n.inherited); ok {
		bound = min(bound, b)
	}
	if bound == none {
		return 0, false
	}
	text, err := readSmall(fsys, path.Join(dir, n.usage))
	used, ok := parseLimit(text)
	if err != nil || !ok {
		return bound, true
	}
	if reclaim, ok := keyedBytes(stat, n.reclaimable); ok {
		used -= min(used, reclaim)
	}
	return max(0, bound-used), true
}

// parseLimit reads a number of bytes; "max", and what version 1 writes for it
// (the largest multiple of a page), is no limit.
func parseLimit(text string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 || n >= 1<<62 {
		return 0, false
	}
	return n, true
}

// keyedBytes finds "key number" or "key number kB" in a text of such lines.
func keyedBytes(text, key string) (int64, bool) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != key {
			continue
		}
		n, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil || n < 0 || n > 1<<52 {
			return 0, false
		}
		if len(f) > 2 && f[2] == "kB" {
			n <<= 10
		}
		return n, true
	}
	return 0, false
}

// hasWord reports whether a comma-separated list has the word.
func hasWord(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

// maxSystemFile bounds what is read of a file of the system.
const maxSystemFile = 4 << 20

func readSmall(fsys fs.FS, name string) (string, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSystemFile))
	return string(b), err
}

// binarySize writes bytes for people: "3.6 GiB".
func binarySize(n int64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
}
