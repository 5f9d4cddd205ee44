//go:build !linux

package experts

// newMemory lends from the Go heap where there is no arena.
func newMemory(_ []int64, _ int64, _ int) (Memory, error) {
	return NewHeapMemory(), nil
}
