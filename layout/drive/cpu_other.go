//go:build !unix

package drive

import "time"

// cpuTime is not known here.
func cpuTime() time.Duration { return 0 }
