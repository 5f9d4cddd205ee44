package mmaparm

import (
	"context"
	"time"
)

// spinTime is how long before its end a wait is no longer left to a timer,
// which is late by about as much.
const spinTime = 200 * time.Microsecond

// Compute imitates compute of the length d: it sleeps, and spins at the end to
// be exact. It returns what it really took; less than d only if ctx ended. It
// does not end in a testing/synctest bubble, whose clock stands while it spins.
func Compute(ctx context.Context, d time.Duration) time.Duration {
	start := time.Now()
	if d > spinTime {
		timer := time.NewTimer(d - spinTime)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return time.Since(start)
		}
	}
	for {
		took := time.Since(start)
		if took >= d {
			return took
		}
	}
}
