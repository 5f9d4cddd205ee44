package iobench

import (
	"time"

	"golang.org/x/sys/windows"
)

// processCPU is 0 where the system does not tell.
func processCPU() time.Duration {
	var created, exited, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(windows.CurrentProcess(), &created, &exited, &kernel, &user); err != nil {
		return 0
	}
	return 100 * time.Nanosecond * time.Duration(ticks(kernel)+ticks(user))
}

func ticks(t windows.Filetime) int64 { return int64(t.HighDateTime)<<32 | int64(t.LowDateTime) }
