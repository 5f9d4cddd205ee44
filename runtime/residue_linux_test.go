package runtime_test

import (
	"fmt"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"testing"
	"time"
)

// left is what a process holds.
type left struct {
	resident, mapped int64 // bytes
	goroutines       int
}

// residue is what the process holds when all that has ended is gone.
func residue(t *testing.T) left {
	t.Helper()
	debug.FreeOSMemory()
	var pages left
	text, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(text), &pages.mapped, &pages.resident)
	}
	if err != nil {
		t.Fatal(err)
	}
	page := int64(os.Getpagesize())
	// A goroutine that was joined may still be on its last instructions.
	for range 100 {
		n := goruntime.NumGoroutine()
		time.Sleep(time.Millisecond)
		if goruntime.NumGoroutine() >= n {
			break
		}
	}
	return left{resident: pages.resident * page, mapped: pages.mapped * page, goroutines: goruntime.NumGoroutine()}
}
