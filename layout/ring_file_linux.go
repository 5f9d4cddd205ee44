package layout

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// ringFile is a direct file that is read through a ring.
type ringFile struct {
	direct *directFile
	engine *ringEngine
	fd     int // of direct, valid while it is open

	mu     sync.Mutex // guards the fields below
	closed bool
	reads  int // in flight; the last one of a closed file closes direct
}

var _ File = (*ringFile)(nil)

// adopt proves that the ring reads a direct file rightly. Where it does not,
// the file stays as it is.
func (e *ringEngine) adopt(f File, name string) (File, error) {
	select {
	case <-e.closing:
		return nil, &fs.PathError{Op: "open", Path: name, Err: errRingClosed}
	default:
	}
	direct, ok := f.(*directFile)
	if !ok || e.isBroken() {
		return f, nil
	}
	plain, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	// The poller has no use for regular files, so that Fd changes nothing.
	ringed := &ringFile{direct: direct, engine: e, fd: int(direct.f.Fd())}
	reason, err := probe(ringOnly{ringed}, plain, direct.align, direct.size)
	dropPages(plain, 0, 2*int64(direct.align.Offset))
	switch {
	case errors.Is(err, fs.ErrClosed):
		return nil, err
	case err != nil:
		reason = fmt.Sprintf("a read through the ring failed (%v)", err)
	case reason == "":
		return ringed, nil
	}
	reason = name + ": " + reason
	e.reason.CompareAndSwap(nil, &reason)
	return direct, nil
}

// ringOnly is a ringFile without its way out: a proof by pread proves nothing.
type ringOnly struct{ f *ringFile }

func (r ringOnly) ReadAt(p []byte, off int64) (int, error) { return r.f.readRing(p, off) }

// ReadAt reads what the ring does not take by pread.
func (f *ringFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.direct.aligned(p, off); err != nil {
		return 0, err
	}
	if err := f.begin(); err != nil {
		return 0, err
	}
	defer f.end()
	if len(p) == 0 || off < 0 {
		return f.direct.read(p, off)
	}
	n, err := f.readRing(p, off)
	if errors.Is(err, errNotTaken) {
		var more int
		more, err = f.direct.read(p[n:], off+int64(n))
		n += more
	}
	return n, err
}

// readRing reads until p is full, the file ends, or something is wrong, as
// os.File does. It returns errNotTaken with what came before.
func (f *ringFile) readRing(p []byte, off int64) (int, error) {
	n, tries := 0, 0
	for n < len(p) {
		got, err := f.engine.read(f.fd, p[n:], off+int64(n))
		n += got
		atEnd := off+int64(n) >= f.direct.size
		switch {
		case err == nil && got > 0 && (n == len(p) || !atEnd):
			tries = 0
		case err == nil, atEnd && !errors.Is(err, fs.ErrClosed) && !errors.Is(err, errNotTaken):
			// Beyond the end some file systems refuse instead of reporting it.
			return n, io.EOF
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ECANCELED):
			// A read is cancelled when the thread that submitted it ends.
			if tries++; tries == ringTries {
				return n, errNotTaken
			}
		case errors.Is(err, errNotTaken):
			return n, err
		default:
			return n, &fs.PathError{Op: "read", Path: f.direct.f.Name(), Err: err}
		}
	}
	return n, nil
}

func (f *ringFile) begin() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return &fs.PathError{Op: "read", Path: f.direct.f.Name(), Err: fs.ErrClosed}
	}
	f.reads++
	return nil
}

// end closes a closed file behind its last read, whose error nobody waits for.
func (f *ringFile) end() {
	f.mu.Lock()
	f.reads--
	last := f.closed && f.reads == 0
	f.mu.Unlock()
	if last {
		_ = f.direct.Close()
	}
}

func (f *ringFile) Size() int64       { return f.direct.size }
func (f *ringFile) Direct() Alignment { return f.direct.align }

// Engine is that of the next read.
func (f *ringFile) Engine() string {
	if f.engine.isBroken() {
		return EnginePread
	}
	return EngineRing
}

// Close does not wait for reads in flight: they end as if it came after them.
func (f *ringFile) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return &fs.PathError{Op: "close", Path: f.direct.f.Name(), Err: fs.ErrClosed}
	}
	f.closed = true
	idle := f.reads == 0
	f.mu.Unlock()
	if idle {
		return f.direct.Close()
	}
	return nil
}
