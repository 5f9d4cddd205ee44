//go:build !linux

package experts

import (
	"errors"
	"fmt"

	"outrider/layout"
)

var _ Stacked = (*FixedMemory)(nil)

// FixedMemory gives each expert one address for the whole run. It exists on
// Linux only.
type FixedMemory struct{ heapMemory }

// NewFixedMemory always fails here with errors.ErrUnsupported.
func NewFixedMemory(layout.Shape, []int64) (*FixedMemory, error) {
	return nil, fmt.Errorf("experts: fixed addresses need Linux: %w", errors.ErrUnsupported)
}

// Fixed is true.
func (*FixedMemory) Fixed() bool { return true }

// Stack is nil here.
func (*FixedMemory) Stack(int) []byte { return nil }

// StackStride is 0 here.
func (*FixedMemory) StackStride(int) int64 { return 0 }
