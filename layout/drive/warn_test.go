package drive

import (
	"strings"
	"testing"
)

// good is a profile that nothing speaks against.
func good() Profile {
	return Profile{
		Direct: true, FileBytes: 1 << 30, BytesPerSecond: 3e9, LatencySeconds: 8e-5,
		Cells: []Cell{{Rounds: 3, Spread: 1.4}, {Rounds: 4, Spread: 2}},
	}
}

func TestJudge(t *testing.T) {
	nvme := Device{FileSystem: "ext4", Name: "nvme0n1", Link: "PCIe 8.0 GT/s x4", LinkBytesPerSecond: 3.94e9}
	for _, tt := range []struct {
		name    string
		change  func(*Profile)
		warning string // that it begins with; empty: none
		note    string // that one note begins with; empty: no notes
	}{
		{"nothing known", func(*Profile) {}, "", ""},
		{"a good drive", func(p *Profile) { p.Device = nvme }, "", ""},
		{"tmpfs reads directly", func(p *Profile) { p.Device.FileSystem = "tmpfs" }, "memory was measured, not a drive: tmpfs", ""},
		{"ramfs", func(p *Profile) { p.Device.FileSystem = "ramfs" }, "memory was measured, not a drive: ramfs", ""},
		{"huge pages", func(p *Profile) { p.Device.FileSystem = "hugetlbfs" }, "memory was measured, not a drive: hugetlbfs", ""},
		{"a RAM disk", func(p *Profile) { p.Device = Device{FileSystem: "ext4", Name: "ram0"} }, "memory was measured, not a drive: ram0", ""},
		{"zram", func(p *Profile) { p.Device = Device{FileSystem: "ext4", Name: "zram1"} }, "memory was measured, not a drive: zram1", ""},
		{"buffered", func(p *Profile) { p.Direct, p.Fallback = false, "the file system refuses" }, "memory may have been measured, not the drive: reads went through the page cache (the file system refuses)", ""},
		{"buffered without a reason", func(p *Profile) { p.Direct = false }, "memory may have been measured, not the drive: reads went through the page cache (the file system has no direct reads)", ""},
		{"at the link's ceiling", func(p *Profile) { p.Device, p.BytesPerSecond = nvme, 3.94e9 }, "", ""},
		{"65 GB/s on a link of 4", func(p *Profile) { p.Device, p.BytesPerSecond = nvme, 65e9 }, "memory was measured, not the drive: 65.00 GB/s is more than its link can carry (PCIe 8.0 GT/s x4, 3.94 GB/s)", ""},
		{"65 GB/s, no link known", func(p *Profile) { p.BytesPerSecond = 65e9 }, "memory was measured, not the drive: no drive gives 65 GB/s", ""},
		{"a fast array", func(p *Profile) { p.BytesPerSecond = 29e9 }, "", ""},
		{"btrfs", func(p *Profile) { p.Device.FileSystem = "btrfs" }, "", "btrfs keeps checksums or compresses"},
		{"zfs", func(p *Profile) { p.Device.FileSystem = "zfs" }, "", "zfs keeps checksums or compresses"},
		{"zfs, buffered", func(p *Profile) { p.Device.FileSystem, p.Direct = "zfs", false }, "memory may have been measured", "zfs keeps"},
		{"nfs", func(p *Profile) { p.Device.FileSystem = "nfs" }, "", "nfs brings files over a connection"},
		{"9p", func(p *Profile) { p.Device.FileSystem = "9p" }, "", "9p brings files over a connection"},
		{"fuse", func(p *Profile) { p.Device.FileSystem = "fuse" }, "", "fuse: a program serves"},
		{"overlay", func(p *Profile) { p.Device.FileSystem = "overlay" }, "", "overlay: the folder shows files of several others"},
		{"a disk", func(p *Profile) { p.Device.Rotational, p.LatencySeconds = true, 8e-3 }, "", "a rotating disk: each read waits"},
		{"a disk in name", func(p *Profile) { p.Device.Rotational, p.LatencySeconds = true, 9e-5 }, "", "the system calls the drive a rotating disk, but a read takes 90 µs only"},
		{"loop", func(p *Profile) { p.Device.Name = "loop3" }, "", "a loop device"},
		{"a small file", func(p *Profile) { p.FileBytes = 20 << 20 }, "", "the reads were spread over 20 MiB only"},
		{"noise", func(p *Profile) { p.Cells[1].Spread = 3.25 }, "", "rounds differed by more than 2x in 1 of 2 cells, 3.2x at worst"},
		{"one round", func(p *Profile) { p.Cells[0].Rounds = 1 }, "", "cells were measured once only"},
	} {
		p := good()
		tt.change(&p)
		p.judge()
		if !strings.HasPrefix(p.Warning, tt.warning) || (tt.warning == "") != (p.Warning == "") {
			t.Errorf("%s: got warning %q, want %q", tt.name, p.Warning, tt.warning)
		}
		if want := tt.note != ""; want != (len(p.Notes) == 1) || want && !strings.HasPrefix(p.Notes[0], tt.note) {
			t.Errorf("%s: got notes %q, want one that begins with %q", tt.name, p.Notes, tt.note)
		}
	}
}

func TestJudgeKeepsAllNotes(t *testing.T) {
	p := good()
	p.Device = Device{FileSystem: "btrfs", Name: "loop0", Rotational: true}
	p.FileBytes, p.LatencySeconds, p.Cells[0].Spread = 1<<20, 0.01, 9
	p.judge()
	p.judge()
	if len(p.Notes) != 5 {
		t.Errorf("got %q, want five notes, also when judged again", p.Notes)
	}
}
