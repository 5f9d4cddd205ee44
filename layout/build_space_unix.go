//go:build linux || darwin

package layout

import (
	"io/fs"
	"syscall"
)

// allocatedBytes is the space that a file takes on its device.
func allocatedBytes(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(st.Blocks) * 512
	}
	return info.Size()
}
