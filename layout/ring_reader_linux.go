package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"
)

// ringReader reads files of its engine through a ring that it has while reads are in
// the kernel. A started read is in the line until it is pushed into the ring; what a
// ring does not take is read in the direct file's own way, one after another.
//
// The kernel may write to a slot's buffers until its end is popped: only then is the
// slot emptied and the file let go.
type ringReader struct {
	engine *ringEngine
	files  []*ringFile
	strict bool // a proof: what a ring does not carry out fails
	closed bool

	ring   *uring // nil: none is lent
	slots  []ringSlot
	free   []int // slots without a read, by number
	line   []int // of started reads, in order
	flying int   // pushed and not popped
}

var _ Reader = (*ringReader)(nil)

// ringSlot is one read. It keeps the buffers that the kernel writes to alive.
type ringSlot struct {
	file  *ringFile // nil: the read was refused at the start, by err
	req   request
	tag   int
	err   error
	aside bool         // the kernel did not take it
	iov   []unix.Iovec // of the read, in room
	room  []unix.Iovec // made with the first read
}

// Room implements Reader.
func (r *ringReader) Room() int {
	under := r.flying + len(r.line)
	if r.usable() {
		return max(r.engine.depth-under, 0)
	}
	return max(1-under, 0)
}

// usable reports whether what is started next goes through a ring.
func (r *ringReader) usable() bool {
	for _, f := range r.files {
		if !f.ringed() {
			return false
		}
	}
	return !r.closed && (r.ring != nil || r.engine.spare())
}

// Start implements Reader.
func (r *ringReader) Start(f File, tag int, bufs [][]byte, off int64) {
	id := r.slot()
	s := &r.slots[id]
	s.tag, s.req = tag, request{many: bufs, off: off}
	r.line = append(r.line, id)
	file, ok := f.(*ringFile)
	switch {
	case !ok || !slices.Contains(r.files, file):
		s.err = fmt.Errorf("layout: read at %d of a file that the reader was not made for", off)
	case r.closed || r.engine.closed.Load():
		s.err = &fs.PathError{Op: "read", Path: file.f.Name(), Err: errRingClosed}
	default:
		if s.err = file.begin(s.req); s.err == nil {
			s.file = file
		}
	}
}

// slot is an empty one.
func (r *ringReader) slot() int {
	if n := len(r.free); n > 0 {
		id := r.free[n-1]
		r.free = r.free[:n-1]
		return id
	}
	r.slots = append(r.slots, ringSlot{})
	return len(r.slots) - 1
}

// Wait implements Reader.
func (r *ringReader) Wait() (tag, n int, err error) {
	if r.flying == 0 && len(r.line) == 0 {
		return 0, 0, errors.New("layout: nothing to wait for: no read was started")
	}
	r.push()
	r.submit()
	for {
		if id, res, ok := r.pop(); ok {
			n, err = r.finish(&r.slots[id], res)
			return r.end(id), n, err
		}
		if len(r.line) > 0 {
			id := r.line[0]
			r.line = slices.Delete(r.line, 0, 1)
			n, err = r.beside(&r.slots[id])
			return r.end(id), n, err
		}
		r.linger()
	}
}

// finish makes the kernel's answer the read's. What it leaves open is read by
// pread, and what that is refused as well through the page cache.
func (r *ringReader) finish(s *ringSlot, res int32) (int, error) {
	f, p := s.file, progress{total: s.req.bytes(), off: s.req.off, size: s.file.size}
	var err error
	if res < 0 {
		res, err = 0, unix.Errno(-res)
	}
	more, err := p.next(int(res), err)
	n := int(p.done)
	switch {
	case r.strict:
		return n, err
	case more:
		n, err = f.read(s.req, n)
	case refused(err):
		cause := err
		if n, err = f.read(s.req, n); !refused(err) {
			f.left.Store(true)
			r.engine.bypassed(fmt.Sprintf("%s: a read of %d bytes at %d through the ring was refused (%v), but not by pread",
				f.f.Name(), s.req.bytes(), s.req.off, cause))
		}
	}
	return f.settle(s.req, n, err)
}

// beside carries out a read that is not for a ring.
func (r *ringReader) beside(s *ringSlot) (int, error) {
	switch {
	case s.err != nil:
		return 0, s.err
	case r.strict:
		return 0, errNotTaken
	}
	return s.file.carry(s.req)
}

// end empties the slot of a read that is over, and returns the read's tag.
func (r *ringReader) end(id int) int {
	s := &r.slots[id]
	tag := s.tag
	if s.file != nil {
		s.file.end()
	}
	clear(s.iov)
	*s = ringSlot{room: s.room}
	r.free = append(r.free, id)
	if r.flying == 0 && r.ring != nil {
		_ = r.engine.giveBack(r.ring) // what it could say concerns no read
		r.ring = nil
	}
	return tag
}

// Close implements Reader. What is in the kernel is waited for, the rest forgotten.
func (r *ringReader) Close() error {
	r.closed = true
	for _, id := range r.line {
		r.end(id)
	}
	r.line = nil
	for r.flying > 0 {
		if id, _, ok := r.pop(); ok {
			r.end(id)
			continue
		}
		r.linger()
	}
	return nil
}
