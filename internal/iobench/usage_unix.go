//go:build unix

package iobench

import (
	"time"

	"golang.org/x/sys/unix"
)

// processCPU is 0 where the system does not tell.
func processCPU() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
