//go:build !linux

package runtime_test

import (
	goruntime "runtime"
	"testing"
)

// left is what a process holds.
type left struct {
	resident, mapped int64
	goroutines       int
}

// residue counts goroutines alone.
func residue(*testing.T) left { return left{goroutines: goruntime.NumGoroutine()} }
