package experts

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// PressureSource reads what a Linux system tells of memory pressure: the stall
// time of the process's own cgroup (version 2) or else of the whole system, the
// process's major faults, and how much of it is in swap (VmSwap: the kernel
// counts it, where asking for single pages would cost a walk over all slots).
//
// The whole system's stalls count only while less than a quarter of its memory
// is available: others stall at limits of their own, and a smaller budget here
// would not help them.
//
// It is not safe for concurrent use. A sample costs a few reads of /proc.
type PressureSource struct {
	fsys   fs.FS
	stalls string // file of stall times; empty if there is none
	shared bool   // that is the whole system's
	total  int64  // the system's stall time at the last sample
	ours   int64  // what of it counts
	begun  bool
}

// The files of the process itself, and of the whole system.
const (
	statFile     = "proc/self/stat"
	statusFile   = "proc/self/status"
	systemStalls = "proc/pressure/memory"
)

// newPressureSource looks for what the system tells; fsys is rooted at "/".
func newPressureSource(fsys fs.FS) (*PressureSource, error) {
	s := &PressureSource{fsys: fsys}
	own, shared := ownStalls(fsys)
	switch {
	case tellsStalls(fsys, own):
		s.stalls, s.shared = own, shared
	case tellsStalls(fsys, systemStalls):
		s.stalls, s.shared = systemStalls, true
	}
	_, err := s.Sample()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoPressure, err)
	}
	return s, nil
}

// ownStalls is where the process's version 2 cgroup tells its stalls. The root
// of the hierarchy, which has no type, is the whole system; what looks like the
// root in a container is not.
func ownStalls(fsys fs.FS) (file string, shared bool) {
	groups, err := readSmall(fsys, "proc/self/cgroup")
	if err != nil {
		return "", false
	}
	mounts, _ := readSmall(fsys, "proc/self/mountinfo")
	for _, g := range parseCgroups(groups) {
		if !g.v2 {
			continue
		}
		mount := findMount(mounts, true)
		dir := strings.TrimPrefix(path.Join(mount.point, mount.inside(g.path)), "/")
		_, err := readSmall(fsys, path.Join(dir, "cgroup.type"))
		return path.Join(dir, "memory.pressure"), err != nil
	}
	return "", false
}

func tellsStalls(fsys fs.FS, file string) bool {
	if file == "" {
		return false
	}
	text, err := readSmall(fsys, file)
	if err != nil {
		return false
	}
	_, ok := someTotal(text)
	return ok
}

// String names the source, for a log.
func (s *PressureSource) String() string {
	if s.stalls == "" {
		return "major faults and swap"
	}
	return "/" + s.stalls + ", major faults and swap"
}

// Sample reads the present counters. Its errors name the file.
func (s *PressureSource) Sample() (PressureSample, error) {
	var p PressureSample
	var err error
	if p.MajorFaults, err = parsed(s.fsys, statFile, majorFaults); err != nil {
		return PressureSample{}, err
	}
	if p.SwappedBytes, err = parsed(s.fsys, statusFile, swappedBytes); err != nil {
		return PressureSample{}, err
	}
	if s.stalls == "" {
		return p, nil
	}
	total, err := parsed(s.fsys, s.stalls, someTotal)
	if err != nil {
		return PressureSample{}, err
	}
	if !s.shared {
		p.StallMicros = total
		return p, nil
	}
	if s.begun && total > s.total && scarce(s.fsys) {
		s.ours += total - s.total
	}
	s.begun, s.total, p.StallMicros = true, total, s.ours
	return p, nil
}

// parsed reads a file and takes a number out of it.
func parsed(fsys fs.FS, name string, parse func(string) (int64, bool)) (int64, error) {
	text, err := readSmall(fsys, name)
	if err != nil {
		return 0, fmt.Errorf("experts: pressure: %w", err)
	}
	n, ok := parse(text)
	if !ok {
		return 0, fmt.Errorf("experts: pressure: /%s has not the form that it has on Linux", name)
	}
	return n, nil
}

// scarce reports whether less than a quarter of the system's memory is
// available; if it does not tell, it may be.
func scarce(fsys fs.FS) bool {
	text, err := readSmall(fsys, "proc/meminfo")
	if err != nil {
		return true
	}
	total, ok := keyedBytes(text, "MemTotal:")
	available, also := keyedBytes(text, "MemAvailable:")
	return !ok || !also || available < total/4
}

// someTotal finds the µs in "some avg10=0.00 avg60=0.00 avg300=0.00 total=5".
func someTotal(text string) (int64, bool) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "some" {
			continue
		}
		total, ok := strings.CutPrefix(f[len(f)-1], "total=")
		if !ok {
			return 0, false
		}
		return parseCount(total)
	}
	return 0, false
}

// majorFaults is the twelfth field of /proc/self/stat; the second is the name
// of the program in brackets, and may have any characters.
func majorFaults(text string) (int64, bool) {
	end := strings.LastIndexByte(text, ')')
	f := strings.Fields(text[end+1:])
	if end < 0 || len(f) < 10 {
		return 0, false
	}
	return parseCount(f[9])
}

// swappedBytes is 0 where the kernel knows no swap and so tells none.
func swappedBytes(text string) (int64, bool) {
	if !strings.Contains(text, "VmSwap:") {
		return 0, strings.Contains(text, "VmRSS:")
	}
	return keyedBytes(text, "VmSwap:")
}

func parseCount(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 0
}
