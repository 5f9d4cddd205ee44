//go:build !linux

package overlap

import (
	"context"
	"fmt"

	"outrider/experts"
	"outrider/layout"
)

// Memory is experts.Stacked memory whose experts appear when they are published. It
// exists on Linux only.
type Memory struct{ experts.Stacked }

// New always fails here with ErrUnavailable.
func New(layout.Shape, []int64) (*Memory, error) {
	return nil, fmt.Errorf("overlap: %w: userfaultfd is of Linux", ErrUnavailable)
}

// Begin does nothing here.
func (*Memory) Begin(context.Context) error { return nil }

// Expect does nothing here.
func (*Memory) Expect(int, []int32) {}

// Publish does nothing here.
func (*Memory) Publish([]byte) error { return nil }

// Fail does nothing here.
func (*Memory) Fail(error) {}

// Err is nil here.
func (*Memory) Err() error { return nil }

// End does nothing here.
func (*Memory) End() error { return nil }
