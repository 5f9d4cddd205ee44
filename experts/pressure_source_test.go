package experts

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
)

const (
	selfStat   = "71 (a) b (c) S 1 71 71 0 -1 4194560 900 0 37 12 5 6 0 0 20 0 9 0\n"
	selfStatus = "Name:\ta\nVmRSS:\t  900 kB\nVmSwap:\t  3 kB\n"
	someStalls = "some avg10=0.00 avg60=0.10 avg300=0.00 total=%TOTAL%\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"
)

func stalls(total string) string { return strings.ReplaceAll(someStalls, "%TOTAL%", total) }

// process is a system with the files of the process itself and some more.
func process(more map[string]string) fstest.MapFS {
	fsys := system(more)
	for name, text := range map[string]string{statFile: selfStat, statusFile: selfStatus} {
		if fsys[name] == nil {
			fsys[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return fsys
}

func TestPressureSource(t *testing.T) {
	for name, row := range map[string]struct {
		files map[string]string
		want  string // source
		stall int64  // after the system's total went from 100 to 400, the group's from 7 to 70
	}{
		"nothing but the process": {nil, "major faults and swap", 0},
		"own group": {map[string]string{
			"proc/self/cgroup": "4:memory:/v1\n0::/a/b\n", "proc/self/mountinfo": mountsV2, systemStalls: stalls("100"),
			"sys/fs/cgroup/a/b/memory.pressure": stalls("7"), "sys/fs/cgroup/a/b/cgroup.type": "domain\n",
		}, "/sys/fs/cgroup/a/b/memory.pressure, major faults and swap", 70},
		"own group in a container": {map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountsV2, systemStalls: stalls("100"),
			"sys/fs/cgroup/memory.pressure": stalls("7"), "sys/fs/cgroup/cgroup.type": "domain\n",
		}, "/sys/fs/cgroup/memory.pressure, major faults and swap", 70},
		"root group is the system, short of memory": {map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountsV2, "sys/fs/cgroup/memory.pressure": stalls("7"),
			"proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 249 kB\n",
		}, "/sys/fs/cgroup/memory.pressure, major faults and swap", 63},
		"system, short of memory": {map[string]string{
			systemStalls: stalls("100"), "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 249 kB\n",
		}, "/proc/pressure/memory, major faults and swap", 300},
		"system, with plenty: others are at their limits": {map[string]string{
			systemStalls: stalls("100"), "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 250 kB\n",
		}, "/proc/pressure/memory, major faults and swap", 0},
		"system, of unknown size": {map[string]string{systemStalls: stalls("100")}, "/proc/pressure/memory, major faults and swap", 300},
		"group tells none":        {map[string]string{"proc/self/cgroup": "0::/a\n", systemStalls: stalls("100")}, "/proc/pressure/memory, major faults and swap", 300},
		"stalls in another form":  {map[string]string{systemStalls: "some total\n"}, "major faults and swap", 0},
		"no number of stalls":     {map[string]string{systemStalls: stalls("-4")}, "major faults and swap", 0},
	} {
		fsys := process(row.files)
		s, err := newPressureSource(fsys)
		if err != nil || s.String() != row.want {
			t.Errorf("%s: got source %q, error %v; want %q", name, s, err, row.want)
			continue
		}
		for file := range row.files {
			switch {
			case file == systemStalls:
				fsys[file] = &fstest.MapFile{Data: []byte(stalls("400"))}
			case strings.HasSuffix(file, "memory.pressure"):
				fsys[file] = &fstest.MapFile{Data: []byte(stalls("70"))}
			}
		}
		want := PressureSample{StallMicros: row.stall, MajorFaults: 37, SwappedBytes: 3 << 10}
		if got, err := s.Sample(); err != nil || got != want {
			t.Errorf("%s: got sample %+v, error %v; want %+v", name, got, err, want)
		}
	}
}

func TestPressureSourceFails(t *testing.T) {
	for name, row := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no stat":        {map[string]string{statFile: ""}, "/proc/self/stat has not the form"},
		"no brackets":    {map[string]string{statFile: "1 2 3 4 5 6 7 8 9 10 11 12 13"}, "/proc/self/stat"},
		"short stat":     {map[string]string{statFile: "71 (a) S 1 2 3"}, "/proc/self/stat"},
		"odd faults":     {map[string]string{statFile: "71 (a) S 1 71 71 0 -1 4194560 900 0 many 12"}, "/proc/self/stat"},
		"no status":      {map[string]string{statusFile: "Name: a\n"}, "/proc/self/status"},
		"no swap number": {map[string]string{statusFile: "VmSwap: x kB\n"}, "/proc/self/status"},
	} {
		_, err := newPressureSource(process(row.files))
		if !errors.Is(err, ErrNoPressure) || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got error %v, want %v with %q", name, err, ErrNoPressure, row.want)
		}
	}
	if _, err := newPressureSource(system(nil)); !errors.Is(err, ErrNoPressure) {
		t.Errorf("no files: got error %v, want %v", err, ErrNoPressure)
	}
	if n, ok := swappedBytes("VmRSS: 5 kB\n"); n != 0 || !ok {
		t.Errorf("a kernel without swap: got %d, %v; want 0, true", n, ok)
	}
	fsys := process(map[string]string{systemStalls: stalls("1")})
	s, err := newPressureSource(fsys)
	if err != nil {
		t.Fatal(err)
	}
	delete(fsys, systemStalls)
	if _, err := s.Sample(); err == nil || !strings.Contains(err.Error(), systemStalls) {
		t.Errorf("stalls that went away: got error %v, want one that names %s", err, systemStalls)
	}
}

func TestPressureSourceOfThisSystem(t *testing.T) {
	s, err := NewPressureSource()
	if runtime.GOOS != "linux" {
		wantError(t, "NewPressureSource", err, ErrNoPressure)
		return
	}
	if err != nil {
		t.Skipf("this system tells nothing: %v", err)
	}
	first, err := s.Sample()
	if err != nil {
		t.Fatalf("first sample: got error %v", err)
	}
	second, err := s.Sample()
	if err != nil || second.StallMicros < first.StallMicros || second.MajorFaults < first.MajorFaults {
		t.Errorf("got samples %+v and %+v, error %v; want them ascending", first, second, err)
	}
	t.Logf("%v: %+v", s, second)
}

func FuzzPressureSource(f *testing.F) {
	f.Add("0::/a\n", mountsV2, stalls("5"), selfStat, selfStatus, meminfo20G)
	f.Add("4:memory:/\n", "", "some avg10=0.00\n", "1 (x", "VmSwap: -1 kB", "MemTotal: 1 kB\n")
	f.Fuzz(func(t *testing.T, cgroup, mounts, stalls, stat, status, meminfo string) {
		s, err := newPressureSource(system(map[string]string{
			"proc/self/cgroup": cgroup, "proc/self/mountinfo": mounts, systemStalls: stalls, "sys/fs/cgroup/memory.pressure": stalls,
			statFile: stat, statusFile: status, "proc/meminfo": meminfo,
		}))
		if err != nil {
			if !errors.Is(err, ErrNoPressure) {
				t.Errorf("got error %v, want %v", err, ErrNoPressure)
			}
			return
		}
		if p, err := s.Sample(); err != nil || p.StallMicros < 0 || p.MajorFaults < 0 || p.SwappedBytes < 0 {
			t.Errorf("got sample %+v, error %v; want none negative, no error", p, err)
		}
	})
}

// BenchmarkPressureSample is what a second of watching costs.
func BenchmarkPressureSample(b *testing.B) {
	s, err := NewPressureSource()
	if err != nil {
		b.Skip(err)
	}
	for b.Loop() {
		if _, err := s.Sample(); err != nil {
			b.Fatal(err)
		}
	}
}
