package drive

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// sysfs is where the kernel describes devices, "/sys".
type sysfs string

// maxStack bounds how deep devices stand on devices (dm, md).
const maxStack = 8

// describe fills in what is told of the block device with this number. File
// systems that span devices, or have none, show numbers of no device.
func (s sysfs) describe(d *Device, number string) {
	dir, err := filepath.EvalSymlinks(filepath.Join(string(s), "dev/block", number))
	if err != nil {
		return
	}
	if exists(filepath.Join(dir, "partition")) {
		dir = filepath.Dir(dir)
	}
	queue := filepath.Join(dir, "queue")
	d.Number, d.Name = read(dir, "dev"), filepath.Base(dir)
	d.Model = read(dir, "device/model")
	d.Rotational = read(queue, "rotational") == "1"
	d.Scheduler = chosen(read(queue, "scheduler"))
	d.LogicalBlockBytes = number64(read(queue, "logical_block_size"))
	d.MaxRequestBytes = number64(read(queue, "max_sectors_kb")) << 10
	d.Link, d.LinkBytesPerSecond = s.linkOf(dir, maxStack)
}

// linkOf names the slowest connection on the way to a disk, and its ceiling;
// that of a device over several disks is the sum of theirs.
func (s sysfs) linkOf(disk string, stack int) (string, float64) {
	below, _ := filepath.Glob(filepath.Join(disk, "slaves/*")) // the pattern is right
	if len(below) == 0 {
		return s.ownLink(disk)
	}
	name, sum := "", 0.0
	for _, link := range below {
		dir, err := filepath.EvalSymlinks(link)
		if err != nil || stack == 0 {
			return "", 0
		}
		if exists(filepath.Join(dir, "partition")) {
			dir = filepath.Dir(dir)
		}
		one, rate := s.linkOf(dir, stack-1)
		if rate == 0 {
			return "", 0
		}
		name, sum = one, sum+rate
	}
	if len(below) > 1 {
		name = strconv.Itoa(len(below)) + " links"
	}
	return name, sum
}

// ownLink walks from a disk up to the root of all devices.
func (s sysfs) ownLink(disk string) (name string, slowest float64) {
	root, err := filepath.EvalSymlinks(filepath.Join(string(s), "devices"))
	if err != nil {
		return "", 0
	}
	if paths, _ := filepath.Glob(filepath.Join(filepath.Dir(disk), "nvme[0-9]*/device")); strings.HasPrefix(filepath.Base(filepath.Dir(disk)), "nvme-subsys") && len(paths) == 1 {
		// A multipath NVMe drive is a virtual device; its controller is beside it.
		if disk, err = filepath.EvalSymlinks(paths[0]); err != nil {
			return "", 0
		}
	}
	for dir := disk; strings.HasPrefix(dir, root+string(filepath.Separator)); dir = filepath.Dir(dir) {
		one, rate := linkAt(dir)
		if rate > 0 && (slowest == 0 || rate < slowest) {
			name, slowest = one, rate
		}
	}
	return name, slowest
}

// linkAt is the connection that a device's folder tells of, if it does.
func linkAt(dir string) (string, float64) {
	if speed := read(dir, "current_link_speed"); speed != "" {
		return pcie(speed, read(dir, "current_link_width"))
	}
	if exists(filepath.Join(dir, "bDeviceClass")) {
		return usb(read(dir, "speed"))
	}
	if strings.HasPrefix(filepath.Base(dir), "ata") {
		if paths, _ := filepath.Glob(filepath.Join(dir, "link*/ata_link/*/sata_spd")); len(paths) > 0 {
			return sata(read(paths[0], ""))
		}
	}
	return "", 0
}

// read returns the first line of an attribute, empty if there is none.
func read(dir, name string) string {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// chosen is the scheduler in brackets: "none [mq-deadline] kyber".
func chosen(list string) string {
	_, rest, found := strings.Cut(list, "[")
	name, _, closed := strings.Cut(rest, "]")
	if !found || !closed {
		return list
	}
	return name
}

func number64(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
