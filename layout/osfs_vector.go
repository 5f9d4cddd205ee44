package layout

import (
	"fmt"
	"io"
	"io/fs"
	"syscall"
)

// request is what one ReadAt or ReadVAt asks for: one buffer, or many.
type request struct {
	one  []byte
	many [][]byte // nil: one
	off  int64
}

func (r request) bytes() int64 {
	if r.many == nil {
		return int64(len(r.one))
	}
	return vectorBytes(r.many)
}

// check refuses what no file can read: too many buffers, or a place before the start.
func (r request) check(name string) error {
	switch {
	case r.off < 0:
		return &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("negative offset %d: %w", r.off, syscall.EINVAL)}
	case len(r.many) > MaxVector:
		return fmt.Errorf("layout: read at %d of %s into %d buffers, want at most %d", r.off, name, len(r.many), MaxVector)
	}
	return nil
}

// readFrom reads the buffers one after another.
func (r request) readFrom(f io.ReaderAt) (int, error) {
	if r.many == nil {
		return f.ReadAt(r.one, r.off)
	}
	return readEach(f, r.many, r.off)
}

func readEach(f io.ReaderAt, bufs [][]byte, off int64) (int, error) {
	done := 0
	for _, p := range bufs {
		if len(p) == 0 {
			continue
		}
		n, err := f.ReadAt(p, off+int64(done))
		if done += n; err != nil && (n < len(p) || err != io.EOF) {
			return done, err
		} else if n < len(p) {
			return done, io.ErrUnexpectedEOF
		}
	}
	return done, nil
}

func vectorBytes(bufs [][]byte) int64 {
	var n int64
	for _, p := range bufs {
		n += int64(len(p))
	}
	return n
}
