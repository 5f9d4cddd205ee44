//go:build !unix && !windows

package iobench

import "time"

// processCPU is 0: the system does not tell.
func processCPU() time.Duration { return 0 }
