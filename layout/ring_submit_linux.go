package layout

import (
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// ringTries is how often reads are offered that the kernel does not take for the moment.
	ringTries = 8

	// lookInterval is how often ends are looked for when the kernel cannot be waited for.
	lookInterval = time.Millisecond
)

// push moves the reads of the line that are for a ring into one.
func (r *ringReader) push() {
	kept := r.line[:0]
	for _, id := range r.line {
		s := &r.slots[id]
		if s.file == nil || s.aside || s.req.bytes() == 0 || !s.file.ringed() || !r.place() {
			kept = append(kept, id)
			continue
		}
		if s.room == nil {
			s.room = make([]unix.Iovec, MaxVector)
		}
		s.iov = s.req.iovecs(0, s.room[:0])
		r.ring.push(s.file.fd, s.iov, s.req.off, id)
		r.flying++
	}
	r.line = kept
}

// place reports whether a ring has a place for one more read.
func (r *ringReader) place() bool {
	if r.ring == nil {
		r.ring = r.engine.lend()
	}
	return r.ring != nil && r.flying < r.engine.depth
}

// submit sees that the kernel takes what was pushed, and waits in the same call for
// an end if there is nothing else to do.
func (r *ringReader) submit() {
	if r.ring == nil {
		return
	}
	for tries := 0; r.ring.waiting() > 0; {
		least := uint32(1)
		if len(r.line) > 0 || r.ring.ended() {
			least = 0
		}
		head := r.ring.head()
		err := r.engine.enter(r.ring, r.ring.waiting(), least)
		switch tries++; {
		case r.ring.head() != head:
			tries = 0
		case tries < ringTries && passing(err):
			runtime.Gosched()
		default:
			r.takeBack(err)
		}
	}
}

// passing reports whether a refusal, or one without a reason, may soon be over.
func passing(err error) bool {
	return err == nil || errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) ||
		errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOMEM)
}

// takeBack puts the reads that the kernel does not take into the line again, to be
// read otherwise, and breaks the rings unless the kernel is merely short of something.
func (r *ringReader) takeBack(err error) {
	if err == nil || !passing(err) {
		r.engine.breakFor(err)
	}
	for r.ring.waiting() > 0 {
		id := r.ring.unpush()
		r.slots[id].aside = true
		r.line = append(r.line, id)
		r.flying--
	}
}

// pop takes the end of a read, if there is one.
func (r *ringReader) pop() (id int, res int32, ok bool) {
	if r.flying == 0 {
		return 0, 0, false
	}
	data, res, ok := r.ring.pop()
	if ok {
		r.flying--
	}
	return int(data), res, ok
}

// linger waits for an end, maybe not long enough. Where the kernel cannot be waited for,
// the shared memory tells all the same, so that nothing can keep a read from ending.
func (r *ringReader) linger() {
	err := r.engine.enter(r.ring, 0, 1)
	if err == nil || errors.Is(err, unix.EINTR) {
		return
	}
	if !passing(err) {
		r.engine.breakFor(err)
	}
	time.Sleep(lookInterval)
}
