package mmaparm

import (
	"errors"
	"os"
	"strings"
	"testing"
)

const (
	mountsV1 = `30 25 0:26 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu
31 25 0:27 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory
32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
`
	mountsV2   = "29 22 0:25 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	mountsPart = "31 25 0:27 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
)

func TestFindParent(t *testing.T) {
	const v2 = "0::/user.slice/a.scope\n"
	tests := []struct {
		name, membership, mounts string
		memory                   string // the groups that have the controller
		want                     string
		files                    groupFiles
		word                     string
	}{
		{"version 1", "9:cpu:/x\n4:memory:/a/b\n0::/\n", mountsV1, "", "/sys/fs/cgroup/memory/a/b", v1Files, ""},
		{"version 1, root", "4:memory:/\n", mountsV1, "", "/sys/fs/cgroup/memory", v1Files, ""},
		{"version 1, shared line", "4:cpu,memory:/a\n", mountsV1, "", "/sys/fs/cgroup/memory/a", v1Files, ""},
		{"container", "4:memory:/docker/ab/c\n", mountsPart, "", "/sys/fs/cgroup/memory/c", v1Files, ""},
		{"container, own", "4:memory:/docker/ab\n", mountsPart, "", "/sys/fs/cgroup/memory", v1Files, ""},
		{"outside of the container", "4:memory:/docker/abc\n", mountsPart, "", "", groupFiles{}, "no memory cgroup"},
		{"version 2, own", v2, mountsV2, "/sys/fs/cgroup/user.slice/a.scope", "/sys/fs/cgroup/user.slice/a.scope", v2Files, ""},
		{"version 2, parent", v2, mountsV2, "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup/user.slice", v2Files, ""},
		{"version 2, no controller", v2, mountsV2, "", "", groupFiles{}, "subtree_control"},
		{"not mounted", v2, "", "", "", groupFiles{}, "no memory cgroup"},
		{"outside of the namespace", "0::/../a\n", mountsV2, "/sys/fs/a", "", groupFiles{}, "no memory cgroup"},
		{"nothing", "", "", "", "", groupFiles{}, "no memory cgroup"},
		{"nonsense", "a:b\n:::\n\n4:memory\n", "- - -\n\n1 2 - cgroup\n", "", "", groupFiles{}, "no memory cgroup"},
	}
	for _, tt := range tests {
		got, files, err := findParent(tt.membership, tt.mounts, func(dir string) bool { return dir == tt.memory })
		if got != tt.want || files != tt.files || (err == nil) != (tt.word == "") || err != nil && !strings.Contains(err.Error(), tt.word) {
			t.Errorf("%s: got %q %v %v, want %q %v and %q", tt.name, got, files, err, tt.want, tt.files, tt.word)
		}
	}
}

func FuzzFindParent(f *testing.F) {
	f.Add("4:memory:/a/b\n0::/\n", mountsV1)
	f.Add("0::/user.slice/a.scope\n", mountsV2)
	f.Add("4:memory:/docker/ab\n", mountsPart)
	f.Fuzz(func(t *testing.T, membership, mounts string) {
		dir, _, err := findParent(membership, mounts, func(string) bool { return true })
		if (dir == "") != (err != nil) {
			t.Errorf("got %q %v, want either", dir, err)
		}
	})
}

// Far under what the kernel reads around a fault there is no life, and the error
// says so.
func TestOutOfMemoryIsTold(t *testing.T) {
	store, dir := openDummy(t, largeRecord)
	onDisk(t, dir)
	a := limited(t, Options{Source: store, BudgetBytes: 64 << 10})
	if ahead := a.Conditions().ReadAheadBytes; ahead < 4<<20 {
		t.Skipf("the device reads %d bytes ahead: too little to fill the group", ahead)
	}
	_, err := a.Play(t.Context(), everything())
	if err == nil {
		t.Skip("the kernel got by with 64 KiB")
	}
	if !errors.Is(err, ErrOutOfMemory) || !strings.Contains(err.Error(), "take a larger budget") {
		t.Errorf("got %v, want %v and what to do", err, ErrOutOfMemory)
	}
	group := a.Limit().Group
	if err := a.Close(); err != nil {
		t.Errorf("close: got %v, want nothing new", err)
	}
	if _, err := os.Stat(group); err == nil {
		t.Errorf("%s is still there", group)
	}
}
