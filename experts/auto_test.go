package experts

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
)

func system(files map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

const (
	meminfo20G = "MemTotal:       25165824 kB\nMemFree:  1 kB\nMemAvailable:   20971520 kB\n"
	mountsV2   = "22 1 0:20 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup rw\n"
	mountsV1   = "1 1 0:1 / /proc rw - proc proc rw\n" +
		"30 25 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n" +
		"31 25 0:27 / /cg/mem rw - cgroup cgroup rw,memory\n"
	gib = int64(1) << 30
)

func TestAutoBudget(t *testing.T) {
	for name, row := range map[string]struct {
		files  map[string]string
		want   int64
		reason string
	}{
		"no cgroup": {
			map[string]string{"proc/meminfo": meminfo20G}, 18 * gib, "available memory is 20.0 GiB",
		},
		"small machine: reserve of 512 MiB": {
			map[string]string{"proc/meminfo": "MemAvailable: 1048576 kB\n"}, gib / 2, "reserve of 512 MiB",
		},
		"v2 limit of the group": {
			map[string]string{
				"proc/meminfo": meminfo20G, "proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": mountsV2,
				"sys/fs/cgroup/a/b/memory.max": "10737418240\n", "sys/fs/cgroup/a/memory.max": "max\n",
			}, 9 * gib, "cgroup limit /sys/fs/cgroup/a/b leaves 10.0 GiB",
		},
		"v2 limit of an ancestor, with usage": {
			map[string]string{
				"proc/meminfo": meminfo20G, "proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": mountsV2,
				"sys/fs/cgroup/a/b/memory.max": "19737418240\n", "sys/fs/cgroup/a/memory.max": "12884901888\n",
				"sys/fs/cgroup/a/memory.current": "4294967296\n", "sys/fs/cgroup/a/memory.stat": "anon 5\ninactive_file 2147483648\n",
			}, 9 * gib, "/sys/fs/cgroup/a leaves 10.0 GiB",
		},
		"v1 limit below a mount of its own": {
			map[string]string{
				"proc/meminfo": meminfo20G, "proc/self/cgroup": "5:cpu,cpuacct:/\n4:memory:/x/y\n0::/\n", "proc/self/mountinfo": mountsV1,
				"cg/mem/x/y/memory.limit_in_bytes": "9223372036854771712\n", "cg/mem/x/memory.limit_in_bytes": "10737418240\n",
			}, 9 * gib, "/cg/mem/x leaves",
		},
		"v1 at the usual place": {
			map[string]string{
				"proc/meminfo": meminfo20G, "proc/self/cgroup": "4:memory:/\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes": "10737418240", "sys/fs/cgroup/memory/memory.usage_in_bytes": "3221225472",
				"sys/fs/cgroup/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 3221225472\n",
			}, 9 * gib, "/sys/fs/cgroup/memory leaves",
		},
		"v2: memory.high is below memory.max": {
			map[string]string{
				"proc/meminfo": meminfo20G, "proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": mountsV2,
				"sys/fs/cgroup/a/memory.max": "19737418240\n", "sys/fs/cgroup/a/memory.high": "12884901888\n",
				"sys/fs/cgroup/a/memory.current": "2147483648\n",
			}, 9 * gib, "/sys/fs/cgroup/a leaves 10.0 GiB",
		},
		"v2: memory.high of an ancestor alone, room in swap does not count": {
			map[string]string{
				"proc/meminfo": meminfo20G, "proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": mountsV2,
				"sys/fs/cgroup/a/memory.high": "10737418240\n", "sys/fs/cgroup/a/memory.max": "max\n",
				"sys/fs/cgroup/a/memory.swap.max": "max\n", "sys/fs/cgroup/a/b/memory.swap.high": "5\n",
			}, 9 * gib, "/sys/fs/cgroup/a leaves 10.0 GiB",
		},
		"mixed: version 1 holds the memory, version 2 has other controllers": {
			map[string]string{
				"proc/meminfo": meminfo20G, "proc/self/cgroup": "4:memory:/x\n0::/y\n",
				"proc/self/mountinfo": "30 25 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" +
					"31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
				"sys/fs/cgroup/unified/y/cgroup.procs": "1\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "10737418240\n",
			}, 9 * gib, "/sys/fs/cgroup/memory/x leaves",
		},
		"mixed: both bound it": {
			map[string]string{
				"proc/meminfo": meminfo20G, "proc/self/cgroup": "4:memory:/x\n0::/y\n",
				"proc/self/mountinfo": "30 25 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" +
					"31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
				"sys/fs/cgroup/unified/y/memory.max": "10737418240\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "12884901888\n",
			}, 9 * gib, "/sys/fs/cgroup/unified/y leaves",
		},
		"v1 limit of an ancestor that a container does not see": {
			map[string]string{
				"proc/meminfo": meminfo20G, "proc/self/cgroup": "4:memory:/docker/c1\n",
				"proc/self/mountinfo":                              "31 25 0:27 /docker/c1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes":       "9223372036854771712\n",
				"sys/fs/cgroup/memory/memory.usage_in_bytes":       "2147483648\n",
				"sys/fs/cgroup/memory/memory.stat":                 "cache 5\nhierarchical_memory_limit 12884901888\nhierarchical_memsw_limit 5\n",
				"sys/fs/cgroup/memory/memory.memsw.usage_in_bytes": "9\n",
			}, 9 * gib, "/sys/fs/cgroup/memory leaves 10.0 GiB",
		},
		"container: the path is outside of the mount": {
			map[string]string{
				"proc/meminfo": meminfo20G, "proc/self/cgroup": "0::/elsewhere/c1\n",
				"proc/self/mountinfo":      "22 1 0:20 /docker/c1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
				"sys/fs/cgroup/memory.max": "10737418240\n",
			}, 9 * gib, "/sys/fs/cgroup leaves",
		},
		"container: the path is below the mount's root": {
			map[string]string{
				"proc/meminfo": meminfo20G, "proc/self/cgroup": "0::/docker/c1/job\n",
				"proc/self/mountinfo":          "22 1 0:20 /docker/c1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
				"sys/fs/cgroup/job/memory.max": "10737418240\n",
			}, 9 * gib, "/sys/fs/cgroup/job leaves",
		},
		"damaged lines": {
			map[string]string{
				"proc/meminfo": meminfo20G, "proc/self/cgroup": "x\n0:\n0::relative\n:::\n0::/../../a\n",
				"proc/self/mountinfo": "- - -\nshort\n", "sys/fs/cgroup/a/memory.max": "many", "sys/fs/cgroup/memory.max": "-5",
			}, 18 * gib, "available memory",
		},
	} {
		got, err := autoBudget(system(row.files))
		if err != nil || got.Bytes != row.want || !strings.Contains(got.Reason, row.reason) {
			t.Errorf("%s: got %d bytes, reason %q, error %v; want %d, reason with %q", name, got.Bytes, got.Reason, err, row.want, row.reason)
		}
	}
}

func TestAutoBudgetFails(t *testing.T) {
	for name, row := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no files":       {nil, "proc/meminfo"},
		"no line":        {map[string]string{"proc/meminfo": "MemFree: 5 kB\n"}, "no MemAvailable"},
		"no number":      {map[string]string{"proc/meminfo": "MemAvailable: lots kB\n"}, "no MemAvailable"},
		"overflow":       {map[string]string{"proc/meminfo": "MemAvailable: 9223372036854775807 kB\n"}, "no MemAvailable"},
		"below reserve":  {map[string]string{"proc/meminfo": "MemAvailable: 500000 kB\n"}, "reserve of 512 MiB"},
		"exhausted room": {map[string]string{"proc/meminfo": meminfo20G, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "5", "sys/fs/cgroup/memory.current": "9"}, "cgroup limit /sys/fs/cgroup leaves 0 MiB"},
	} {
		_, err := autoBudget(system(row.files))
		if !errors.Is(err, ErrNoAutoBudget) || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got error %v, want %v with %q", name, err, ErrNoAutoBudget, row.want)
		}
	}
}

func TestAutoBudgetOfThisSystem(t *testing.T) {
	b, err := AutoBudget()
	if runtime.GOOS != "linux" {
		wantError(t, "AutoBudget", err, ErrNoAutoBudget)
		return
	}
	if err != nil {
		t.Skipf("this system tells no budget: %v", err)
	}
	if b.Bytes <= 0 || b.Bytes%pageBytes != 0 || b.Reason == "" {
		t.Errorf("got %+v, want a positive multiple of %d and a reason", b, pageBytes)
	}
	t.Log(b.Reason)
}

func FuzzAutoBudget(f *testing.F) {
	f.Add(meminfo20G, "0::/a/b\n", mountsV2, "max", "inactive_file 5")
	f.Add(meminfo20G, "4:memory:/x\n", mountsV1, "10737418240", "total_inactive_file 9")
	f.Fuzz(func(t *testing.T, meminfo, cgroup, mounts, limit, stat string) {
		b, err := autoBudget(system(map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": cgroup, "proc/self/mountinfo": mounts,
			"sys/fs/cgroup/memory.max": limit, "sys/fs/cgroup/memory.current": limit, "sys/fs/cgroup/memory.stat": stat,
		}))
		if err == nil && b.Bytes <= 0 {
			t.Errorf("got %+v without an error, want a positive budget", b)
		}
		if err != nil && !errors.Is(err, ErrNoAutoBudget) {
			t.Errorf("got error %v, want %v", err, ErrNoAutoBudget)
		}
	})
}
