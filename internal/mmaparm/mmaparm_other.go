//go:build !linux

package mmaparm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
)

// Arm is a running arm, which there is on Linux only.
type Arm struct{}

// Start fails here.
func Start(context.Context, string, []string, Options) (*Arm, error) { return nil, unsupported() }

// Serve fails here.
func Serve(context.Context, io.Reader, io.Writer) error { return unsupported() }

// Play fails here.
func (*Arm) Play(context.Context, []Use) (Result, error) { return Result{}, unsupported() }

// Limit says that there is none.
func (*Arm) Limit() Limit { return Limit{Reason: unsupported().Error()} }

// Conditions says that nothing is known.
func (*Arm) Conditions() Conditions {
	return Conditions{Reason: unsupported().Error(), ReadAheadBytes: -1}
}

// PeakBytes says that nothing is known.
func (*Arm) PeakBytes() (int64, bool) { return 0, false }

// Close has nothing to close.
func (*Arm) Close() error { return nil }

func unsupported() error {
	return fmt.Errorf("mmaparm: page faults are measured on Linux, not on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
