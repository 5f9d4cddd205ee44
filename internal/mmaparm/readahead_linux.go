package mmaparm

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// readAhead is the read-ahead setting of the device that a file lies on, in
// bytes; -1 if it is unknown.
func readAhead(path string) int64 {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return -1
	}
	device := fmt.Sprintf("%d:%d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev)))
	for _, name := range []string{
		"/sys/class/bdi/" + device + "/read_ahead_kb",
		"/sys/dev/block/" + device + "/queue/read_ahead_kb",
		"/sys/dev/block/" + device + "/../queue/read_ahead_kb", // of a partition
	} {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if kb, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && kb >= 0 && kb < 1<<40 {
			return kb << 10
		}
	}
	return -1
}
