package drive

import (
	"fmt"

	"outrider/layout"
)

// maxAlign is more than a direct read needs of an address.
const maxAlign = 64 << 10

// memory is what a probe reads into. Its pages are made as they are taken, so that no
// read meets one for the first time.
type memory struct {
	bytes   []byte
	free    func() error
	touched int
}

func newMemory(n int) (*memory, error) {
	bytes, free, err := layout.DirectMemory(int64(n), maxAlign)
	if err != nil {
		return nil, fmt.Errorf("drive: buffers: %w", err)
	}
	return &memory{bytes: bytes, free: free}, nil
}

// take returns the first n bytes, all of them backed by pages.
func (m *memory) take(n int) []byte {
	for ; m.touched < n; m.touched += blockStep {
		m.bytes[m.touched] = 1
	}
	return m.bytes[:n]
}

func (m *memory) close() error {
	if err := m.free(); err != nil {
		return fmt.Errorf("drive: buffers: %w", err)
	}
	return nil
}
