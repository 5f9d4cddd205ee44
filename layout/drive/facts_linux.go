package drive

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// fileSystems are the names of statfs's magic numbers.
var fileSystems = map[uint32]string{
	unix.EXT4_SUPER_MAGIC:      "ext4", // and ext2, ext3
	unix.XFS_SUPER_MAGIC:       "xfs",
	unix.F2FS_SUPER_MAGIC:      "f2fs",
	unix.BTRFS_SUPER_MAGIC:     "btrfs",
	unix.BCACHEFS_SUPER_MAGIC:  "bcachefs",
	0x2fc12fc1:                 "zfs", // not in the kernel's own list
	unix.TMPFS_MAGIC:           "tmpfs",
	unix.RAMFS_MAGIC:           "ramfs",
	unix.HUGETLBFS_MAGIC:       "hugetlbfs",
	unix.FUSE_SUPER_MAGIC:      "fuse",
	unix.OVERLAYFS_SUPER_MAGIC: "overlay",
	unix.NFS_SUPER_MAGIC:       "nfs",
	unix.CIFS_SUPER_MAGIC:      "cifs",
	unix.SMB2_SUPER_MAGIC:      "smb2",
	unix.V9FS_MAGIC:            "9p",
	unix.CEPH_SUPER_MAGIC:      "ceph",
	unix.AFS_FS_MAGIC:          "afs",
	unix.EXFAT_SUPER_MAGIC:     "exfat",
	unix.MSDOS_SUPER_MAGIC:     "vfat",
	0x7366746e:                 "ntfs3",
	unix.SQUASHFS_MAGIC:        "squashfs",
}

// deviceFacts is what the system tells of the drive below a file or folder.
func deviceFacts(path string) Device {
	var d Device
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err == nil {
		d.FileSystem = fileSystemName(uint32(fs.Type))
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err == nil {
		sysfs("/sys").describe(&d, fmt.Sprintf("%d:%d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev))))
	}
	return d
}

func fileSystemName(magic uint32) string {
	if name, ok := fileSystems[magic]; ok {
		return name
	}
	return fmt.Sprintf("%#x", magic)
}
