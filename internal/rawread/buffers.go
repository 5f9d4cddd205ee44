package rawread

import (
	"fmt"

	"outrider/layout"
)

// Buffers are what a run reads into, one for each worker, of layout.DirectMemory: without
// it a raw reader would be slower than what it is the measure of. Several runs may use them, one at a time.
type Buffers struct {
	list [][]byte
	free func() error // nil: it is closed
}

// NewBuffers makes n buffers of so many bytes each, which are in memory already.
// Close gives them back.
func NewBuffers(n int, bytes int64) (*Buffers, error) {
	if n < 1 || n > maxWorkers || bytes < minBlock || bytes%minBlock != 0 || bytes > maxBuffers/int64(n) {
		return nil, fmt.Errorf("rawread: %d buffers of %d bytes, want 1 to %d of a multiple of %d, %d bytes together at most",
			n, bytes, maxWorkers, minBlock, int64(maxBuffers))
	}
	memory, free, err := layout.DirectMemory(int64(n)*bytes, largestAlign)
	if err != nil {
		return nil, fmt.Errorf("rawread: buffers: %w: take fewer or smaller ones", err)
	}
	clear(memory) // so that no page is made while time is taken
	b := &Buffers{free: free}
	for at := int64(0); at < int64(len(memory)); at += bytes {
		b.list = append(b.list, memory[at:at+bytes:at+bytes])
	}
	return b, nil
}

// largestAlign is more than any drive asks for.
const largestAlign = 64 << 10

// fit reports whether so many workers can read blocks of that many bytes.
func (b *Buffers) fit(workers int, block int64) bool {
	return len(b.list) >= workers && int64(len(b.list[0])) >= block
}

// Close gives the memory back; no run may be using it. A second Close does nothing.
func (b *Buffers) Close() error {
	free := b.free
	b.list, b.free = nil, nil
	if free == nil {
		return nil
	}
	return free()
}

// Len is how many buffers there are, none after Close.
func (b *Buffers) Len() int { return len(b.list) }
