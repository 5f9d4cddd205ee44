//go:build !linux

package layout

// DirectMemory is n bytes of Go's heap, which does not move, for direct reads and writes.
// They start on a multiple of align, a power of two. free leaves them to the garbage
// collector. There is no error.
func DirectMemory(n, align int64) (memory []byte, free func() error, err error) {
	return alignedBuffer(n, align), func() error { return nil }, nil
}
