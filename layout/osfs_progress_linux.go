package layout

import (
	"errors"
	"io"
	"sync"

	"golang.org/x/sys/unix"
)

// readTries is how often a read is tried that the kernel breaks off for the moment.
const readTries = 8

// progress is how far a read that the kernel answers in parts has come.
type progress struct {
	done, total int64
	off, size   int64 // of the read and of the file
	tries       int
}

// next takes one answer of the kernel, and tells whether to ask for the rest.
// The end is an io.EOF, as os.File has it.
func (p *progress) next(n int, err error) (more bool, _ error) {
	p.done += int64(n)
	atEnd := p.off+p.done >= p.size
	switch {
	case err == nil && n > 0 && p.done >= p.total:
		return false, nil
	case err == nil && n > 0 && !atEnd:
		p.tries = 0
		return true, nil
	case err == nil, atEnd && refused(err): // beyond the end some file systems refuse instead of reporting it
		return false, io.EOF
	case interrupted(err) && p.tries+1 < readTries:
		p.tries++
		return true, nil
	}
	return false, err
}

// refused reports whether an error means that direct reads of this kind are not
// possible here.
func refused(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EFAULT) || errors.Is(err, unix.EOPNOTSUPP)
}

// interrupted reports whether a read was broken off and is worth another try. A
// ring's read is cancelled when the thread that submitted it ends.
func interrupted(err error) bool {
	return errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ECANCELED)
}

// inUse counts the reads of a file, so that its descriptor stays open, and its
// number is not given to another file, until the last one has ended.
type inUse struct {
	mu     sync.Mutex // guards the fields below
	closed bool
	reads  int
}

// begin reports whether a read may begin; its end is told by end.
func (u *inUse) begin() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closed {
		u.reads++
	}
	return !u.closed
}

// end reports whether the descriptor is now to be closed.
func (u *inUse) end() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.reads--
	return u.closed && u.reads == 0
}

// close reports whether it is the first, and whether the descriptor is now to
// be closed.
func (u *inUse) close() (first, now bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	first = !u.closed
	u.closed = true
	return first, first && u.reads == 0
}
