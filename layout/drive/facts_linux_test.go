package drive

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// tree makes files below a folder: a text that begins with "->" is a link.
func tree(t *testing.T, files map[string]string) sysfs {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		var err error
		if len(text) > 2 && text[:2] == "->" {
			err = os.Symlink(filepath.Join(root, text[2:]), path)
		} else {
			err = os.WriteFile(path, []byte(text+"\n"), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return sysfs(root)
}

const (
	port = "devices/pci0000:00/0000:00:01.0"
	nvme = port + "/0000:01:00.0/nvme/nvme0/nvme0n1"
	ata  = "devices/pci0000:00/0000:00:17.0/ata1"
	sda  = ata + "/host0/target0:0:0/0:0:0:0/block/sda"
	usbs = "devices/pci0000:00/0000:00:14.0/usb2/2-1"
	sdb  = usbs + "/2-1:1.0/host6/target6:0:0/6:0:0:0/block/sdb"
	subs = "devices/virtual/nvme-subsystem/nvme-subsys1"
	dm   = "devices/virtual/block/dm-0"
	md   = "devices/virtual/block/md0"
	loop = "devices/virtual/block/dm-9"
)

func machine(t *testing.T) sysfs {
	return tree(t, map[string]string{
		"dev/block/259:0":                                    "->" + nvme,
		"dev/block/259:1":                                    "->" + nvme + "/nvme0n1p1",
		nvme + "/dev":                                        "259:0",
		nvme + "/device":                                     "->" + filepath.Dir(nvme),
		nvme + "/../model":                                   "Fast Drive 1TB      ",
		nvme + "/queue/rotational":                           "0",
		nvme + "/queue/scheduler":                            "[none] mq-deadline kyber",
		nvme + "/nvme0n1p1/dev":                              "259:1",
		nvme + "/nvme0n1p1/partition":                        "1",
		nvme + "/queue/logical_block_size":                   "4096",
		nvme + "/queue/max_sectors_kb":                       "1280",
		port + "/0000:01:00.0/current_link_speed":            "16.0 GT/s PCIe",
		port + "/0000:01:00.0/current_link_width":            "4",
		port + "/current_link_speed":                         "8.0 GT/s PCIe", // the port that it is plugged into is the narrower one
		port + "/current_link_width":                         "4",
		"dev/block/8:0":                                      "->" + sda,
		sda + "/dev":                                         "8:0",
		sda + "/queue/rotational":                            "1",
		sda + "/queue/scheduler":                             "none [mq-deadline]",
		ata + "/link1/ata_link/link1/sata_spd":               "6.0 Gbps",
		"dev/block/8:16":                                     "->" + sdb,
		sdb + "/dev":                                         "8:16",
		usbs + "/bDeviceClass":                               "00",
		usbs + "/speed":                                      "5000",
		"dev/block/259:4":                                    "->" + subs + "/nvme1n1",
		subs + "/nvme1n1/dev":                                "259:4",
		subs + "/nvme1/device":                               "->devices/pci0000:80/0000:81:00.0",
		"devices/pci0000:80/0000:81:00.0/current_link_speed": "32.0 GT/s PCIe",
		"devices/pci0000:80/0000:81:00.0/current_link_width": "4",
		"dev/block/253:0":                                    "->" + dm,
		dm + "/dev":                                          "253:0",
		dm + "/slaves/nvme0n1p1":                             "->" + nvme + "/nvme0n1p1",
		"dev/block/9:0":                                      "->" + md,
		md + "/dev":                                          "9:0",
		md + "/slaves/nvme0n1":                               "->" + nvme,
		md + "/slaves/sda":                                   "->" + sda,
		"dev/block/253:9":                                    "->" + loop,
		loop + "/dev":                                        "253:9",
		loop + "/slaves/dm-9":                                "->" + loop, // stands on itself
	})
}

func TestSysfs(t *testing.T) {
	s := machine(t)
	const gen3x4 = 8e9 / 8 * 128 / 130 * 4
	for _, tt := range []struct {
		number string
		want   Device
	}{
		{"259:0", Device{Number: "259:0", Name: "nvme0n1", Model: "Fast Drive 1TB", Scheduler: "none", LogicalBlockBytes: 4096, MaxRequestBytes: 1280 << 10, Link: "PCIe 8.0 GT/s x4", LinkBytesPerSecond: gen3x4}},
		{"259:1", Device{Number: "259:0", Name: "nvme0n1", Model: "Fast Drive 1TB", Scheduler: "none", LogicalBlockBytes: 4096, MaxRequestBytes: 1280 << 10, Link: "PCIe 8.0 GT/s x4", LinkBytesPerSecond: gen3x4}},
		{"8:0", Device{Number: "8:0", Name: "sda", Rotational: true, Scheduler: "mq-deadline", Link: "SATA 6.0 Gb/s", LinkBytesPerSecond: 6e8}},
		{"8:16", Device{Number: "8:16", Name: "sdb", Link: "USB 5000 Mb/s", LinkBytesPerSecond: 6.25e8}},
		{"259:4", Device{Number: "259:4", Name: "nvme1n1", Link: "PCIe 32.0 GT/s x4", LinkBytesPerSecond: 4 * gen3x4}},
		{"253:0", Device{Number: "253:0", Name: "dm-0", Link: "PCIe 8.0 GT/s x4", LinkBytesPerSecond: gen3x4}},
		{"9:0", Device{Number: "9:0", Name: "md0", Link: "2 links", LinkBytesPerSecond: gen3x4 + 6e8}},
		{"253:9", Device{Number: "253:9", Name: "dm-9"}},
		{"0:45", Device{}},
	} {
		var got Device
		s.describe(&got, tt.number)
		if !near(got.LinkBytesPerSecond, tt.want.LinkBytesPerSecond, 1e-9) {
			t.Errorf("%s: got a link of %v bytes/s, want %v", tt.number, got.LinkBytesPerSecond, tt.want.LinkBytesPerSecond)
		}
		got.LinkBytesPerSecond = tt.want.LinkBytesPerSecond
		if got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.number, got, tt.want)
		}
	}
}

func TestLinks(t *testing.T) {
	for _, tt := range []struct {
		name string
		got  func() (string, float64)
		want string
		rate float64
	}{
		{"generation 1", func() (string, float64) { return pcie("2.5 GT/s PCIe", "1") }, "PCIe 2.5 GT/s x1", 250e6},
		{"generation 4", func() (string, float64) { return pcie("16.0 GT/s PCIe", "4") }, "PCIe 16.0 GT/s x4", 7.8769e9},
		{"generation 6", func() (string, float64) { return pcie("64.0 GT/s PCIe", "4") }, "PCIe 64.0 GT/s x4", 30.25e9},
		{"no link", func() (string, float64) { return pcie("Unknown", "0") }, "", 0},
		{"no width", func() (string, float64) { return pcie("8.0 GT/s PCIe", "0") }, "", 0},
		{"absurd", func() (string, float64) { return pcie("1e300 GT/s", "4") }, "", 0},
		{"not a number", func() (string, float64) { return pcie("NaN GT/s", "4") }, "", 0},
		{"SATA", func() (string, float64) { return sata("3.0 Gbps") }, "SATA 3.0 Gb/s", 300e6},
		{"SATA unknown", func() (string, float64) { return sata("<unknown>") }, "", 0},
		{"USB 2", func() (string, float64) { return usb("480") }, "USB 480 Mb/s", 60e6},
		{"USB unknown", func() (string, float64) { return usb("") }, "", 0},
	} {
		if name, rate := tt.got(); name != tt.want || !near(rate, tt.rate, 1e-4) {
			t.Errorf("%s: got %q, %v, want %q, %v", tt.name, name, rate, tt.want, tt.rate)
		}
	}
}

func TestFileSystemNames(t *testing.T) {
	for magic, want := range map[uint32]string{
		0xef53: "ext4", 0x01021994: "tmpfs", 0x9123683e: "btrfs", 0x2fc12fc1: "zfs", 0x65735546: "fuse", 0x6969: "nfs",
		0x01021997: "9p", 0x794c7630: "overlay", 0x858458f6: "ramfs", 0x12345678: "0x12345678",
	} {
		if got := fileSystemName(magic); got != want {
			t.Errorf("%#x: got %s, want %s", magic, got, want)
		}
	}
}

func TestFactsOfThisMachine(t *testing.T) {
	d := deviceFacts(t.TempDir())
	if d.FileSystem == "" {
		t.Errorf("got %+v, want a file system at least", d)
	}
	if d := deviceFacts("/proc"); d.Name != "" || d.FileSystem != "0x9fa0" {
		t.Errorf("/proc: got %+v, want no device", d)
	}
	if d := deviceFacts(filepath.Join(t.TempDir(), "missing")); d != (Device{}) {
		t.Errorf("a missing file: got %+v, want nothing", d)
	}
}

// shm is a folder of a tmpfs, where direct reads succeed on new kernels.
func shm(t *testing.T) string {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err != nil || st.Type != unix.TMPFS_MAGIC || int64(st.Bavail)*st.Bsize < 128*mib {
		t.Skip("no tmpfs with room at /dev/shm")
	}
	dir, err := os.MkdirTemp("/dev/shm", "outrider-probe-test-")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
