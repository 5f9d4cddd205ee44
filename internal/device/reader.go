package device

import (
	"errors"
	"fmt"
	"io/fs"

	"outrider/layout"
)

// readerRoom is how many reads a Reader of modelled drives has under way at once.
const readerRoom = 64

// severalFile is a file of a drive whose Model.Several is set.
type severalFile struct{ *file }

var _ layout.MultiFile = severalFile{}

// NewReader serves files of any drives with Model.Several.
func (f severalFile) NewReader(others ...layout.File) layout.Reader {
	for _, o := range others {
		if _, ok := o.(severalFile); !ok {
			return nil
		}
	}
	return &reader{ends: make(chan end, readerRoom)}
}

// reader carries out reads as the drives do, each in a goroutine that ends with it.
type reader struct {
	begun  []func() end // started, for the next Wait
	under  int          // carried out
	ends   chan end
	closed bool
}

type end struct {
	tag, n   int
	err      error
	panicked any
}

// Room implements layout.Reader.
func (r *reader) Room() int { return max(readerRoom-len(r.begun)-r.under, 0) }

// Start implements layout.Reader.
func (r *reader) Start(f layout.File, tag int, bufs [][]byte, off int64) {
	on, ok := f.(severalFile)
	closed := r.closed
	r.begun = append(r.begun, func() (e end) {
		e.tag = tag
		defer func() { e.panicked = recover() }()
		switch {
		case !ok:
			e.err = errors.New("device: the file is on no drive with a reader")
		case closed:
			e.err = fmt.Errorf("device: read by a closed reader: %w", fs.ErrClosed)
		default:
			e.n, e.err = on.ReadVAt(bufs, off)
		}
		return e
	})
}

// Wait implements layout.Reader. The panic of a read is its own.
func (r *reader) Wait() (tag, n int, err error) {
	for _, read := range r.begun {
		r.under++
		go func() { r.ends <- read() }()
	}
	r.begun = nil
	if r.under == 0 {
		return 0, 0, errors.New("device: no read was started")
	}
	e := <-r.ends
	r.under--
	if e.panicked != nil {
		panic(e.panicked)
	}
	return e.tag, e.n, e.err
}

// Close implements layout.Reader.
func (r *reader) Close() error {
	r.closed, r.begun = true, nil
	for ; r.under > 0; r.under-- {
		<-r.ends
	}
	return nil
}
