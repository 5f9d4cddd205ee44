package drive

import (
	"fmt"
	"slices"
	"strings"
)

const (
	fastestDevice = 30e9      // bytes a second: no single drive gives more
	linkTolerance = 1.02      // a link's ceiling is computed, not measured
	smallFile     = 256 << 20 // below it the cache inside a drive may hold it all
	noisy         = 2         // rounds that differ by more
	seekSeconds   = 1e-3      // below it no disk has moved its heads
)

// Names of file systems, as Device.FileSystem has them, that need a word.
var (
	memoryFS     = []string{"tmpfs", "ramfs", "hugetlbfs"}
	compressedFS = []string{"btrfs", "zfs", "bcachefs"}
	networkFS    = []string{"nfs", "cifs", "smb2", "9p", "ceph", "afs"}
)

// judge fills in Warning and Notes from the other fields.
func (p *Profile) judge() {
	p.Warning, p.Notes = memoryWarning(p), nil
	note := func(format string, args ...any) { p.Notes = append(p.Notes, fmt.Sprintf(format, args...)) }
	d := p.Device
	switch {
	case slices.Contains(compressedFS, d.FileSystem):
		note("%s keeps checksums or compresses: it may serve direct reads through memory, and weights that were stored compressed read differently from the random bytes of a probe; probe a store itself", d.FileSystem)
	case slices.Contains(networkFS, d.FileSystem):
		note("%s brings files over a connection: its far side may have answered from memory, and other users share it", d.FileSystem)
	case d.FileSystem == "fuse":
		note("fuse: a program serves this file system, and may answer from memory; the figures are that program's")
	case d.FileSystem == "overlay":
		note("overlay: the folder shows files of several others, and a store that is part of an image may lie on another drive than a new file; probe the file itself, or a mounted volume")
	}
	if d.Rotational && p.LatencySeconds >= seekSeconds {
		note("a rotating disk: each read waits for its heads, so that small reads are far slower than large ones and experts come late; a solid-state drive is meant")
	} else if d.Rotational {
		note("the system calls the drive a rotating disk, but a read takes %.0f µs only: it is a virtual drive, or a cache answers", p.LatencySeconds*1e6)
	}
	if strings.HasPrefix(d.Name, "loop") {
		note("a loop device: its blocks are a file of another file system, whose cache may have answered")
	}
	if p.FileBytes < smallFile {
		note("the reads were spread over %d MiB only: the cache inside a drive may hold that; a file of 1 GiB and more tells more", p.FileBytes>>20)
	}
	if n, worst := p.noise(); n > 0 {
		note("rounds differed by more than %dx in %d of %d cells, %.1fx at worst: something else used the drive or the processor; measure again when it is quiet", noisy, n, len(p.Cells), worst)
	}
	if slices.ContainsFunc(p.Cells, func(c Cell) bool { return c.Rounds < 2 }) {
		note("cells were measured once only: allow a longer duration")
	}
}

// memoryWarning says why memory was measured and not a drive, empty if nothing
// says so.
func memoryWarning(p *Profile) string {
	d := p.Device
	switch {
	case slices.Contains(memoryFS, d.FileSystem):
		return fmt.Sprintf("memory was measured, not a drive: %s keeps its files in memory", d.FileSystem)
	case strings.HasPrefix(d.Name, "ram"), strings.HasPrefix(d.Name, "zram"):
		return fmt.Sprintf("memory was measured, not a drive: %s is a block device in memory", d.Name)
	case !p.Direct:
		reason := p.Fallback
		if reason == "" {
			reason = "the file system has no direct reads"
		}
		return fmt.Sprintf("memory may have been measured, not the drive: reads went through the page cache (%s)", reason)
	case d.LinkBytesPerSecond > 0 && p.BytesPerSecond > linkTolerance*d.LinkBytesPerSecond:
		return fmt.Sprintf("memory was measured, not the drive: %.2f GB/s is more than its link can carry (%s, %.2f GB/s)", p.BytesPerSecond/1e9, d.Link, d.LinkBytesPerSecond/1e9)
	case p.BytesPerSecond > fastestDevice:
		return fmt.Sprintf("memory was measured, not the drive: no drive gives %.0f GB/s", p.BytesPerSecond/1e9)
	}
	return ""
}

// noise counts the cells whose rounds differ much.
func (p *Profile) noise() (cells int, worst float64) {
	for _, c := range p.Cells {
		if c.Spread > noisy {
			cells++
			worst = max(worst, c.Spread)
		}
	}
	return cells, worst
}
