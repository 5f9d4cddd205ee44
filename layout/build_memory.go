package layout

import "sync/atomic"

// workMemory is the buffers of several workers, of DirectMemory.
type workMemory struct {
	list [][]byte
	free func() error // nil: the garbage collector does
	next atomic.Int64
}

// newWorkMemory makes n buffers of at least so many bytes, which start on a multiple
// of align.
func newWorkMemory(n int, bytes, align int64) *workMemory {
	bytes = alignUp(bytes, align)
	all, free, err := DirectMemory(int64(n)*bytes, align)
	if err != nil {
		all, free = alignedBuffer(int64(n)*bytes, align), nil
	}
	m := &workMemory{free: free}
	for at := int64(0); at < int64(len(all)); at += bytes {
		m.list = append(m.list, all[at:at+bytes:at+bytes])
	}
	return m
}

// take hands out the next buffer. Each of the n may be taken once.
func (m *workMemory) take() []byte { return m.list[m.next.Add(1)-1] }

// reset takes all buffers back; nobody may be using them.
func (m *workMemory) reset() { m.next.Store(0) }

// close gives the memory back; nobody may be using it.
func (m *workMemory) close() error {
	if m.free == nil {
		return nil
	}
	return m.free()
}
