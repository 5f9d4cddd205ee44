//go:build !linux

package layout

// mapMemory leaves it to Go's heap.
func mapMemory(int64) (memory []byte, free func() error) { return nil, nil }
