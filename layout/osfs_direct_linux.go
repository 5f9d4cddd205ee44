package layout

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// directReads tells whether this package knows direct reads here.
const directReads = true

// maxRead is what the kernel is asked for at once: the length of a ring's read
// has 32 bits, and the kernel cuts all reads somewhat below 2 GiB.
const maxRead = 1 << 30

// directCalls is the kernel's part in direct reads. Tests put failures here.
type directCalls struct {
	open   func(name string) (*os.File, error) // around the page cache
	statx  func(fd int, st *unix.Statx_t) error
	preadv func(fd int, iov []unix.Iovec, off int64) (int, error)
}

// directFile reads around the page cache by preadv. Should a direct read be
// refused although one was proven to work at open (a larger one, say, or one to
// another kind of memory), the file is read through the cache from then on.
type directFile struct {
	use   inUse // of both descriptors
	f     *os.File
	fd    int      // of f, valid during a read
	plain *os.File // the same file through the page cache
	size  int64
	align Alignment
	calls *directCalls

	vectors sync.Pool              // of *[MaxVector]unix.Iovec
	fallen  atomic.Pointer[string] // why reads go through the page cache; nil: they do not
}

var _ VectorFile = (*directFile)(nil)

func newDirectFile(f, plain *os.File, size int64, align Alignment, calls *directCalls) *directFile {
	// The poller has no use for regular files, so that Fd changes nothing.
	d := &directFile{f: f, fd: int(f.Fd()), plain: plain, size: size, align: align, calls: calls}
	d.vectors.New = func() any { return new([MaxVector]unix.Iovec) }
	return d
}

// ReadAt checks the alignment itself: some file systems accept reads that
// others refuse.
func (d *directFile) ReadAt(p []byte, off int64) (int, error) {
	return d.serve(request{one: p, off: off})
}

func (d *directFile) ReadVAt(bufs [][]byte, off int64) (int, error) {
	return d.serve(request{many: bufs, off: off})
}

func (d *directFile) serve(r request) (int, error) {
	if err := d.begin(r); err != nil {
		return 0, err
	}
	defer d.end()
	return d.carry(r)
}

// carry reads what was begun.
func (d *directFile) carry(r request) (int, error) {
	if d.fallen.Load() != nil {
		return d.readPlain(r)
	}
	n, err := d.read(r, 0)
	return d.settle(r, n, err)
}

// begin checks a request; without an error, end must follow.
func (d *directFile) begin(r request) error {
	if err := r.check(d.f.Name()); err != nil {
		return err
	}
	if !r.keeps(d.align) {
		return fmt.Errorf("layout: read of %d bytes at %d of %s: %w: addresses need a multiple of %d, offset and lengths of %d",
			r.bytes(), r.off, d.f.Name(), ErrUnaligned, d.align.Memory, d.align.Offset)
	}
	if !d.use.begin() {
		return &fs.PathError{Op: "read", Path: d.f.Name(), Err: fs.ErrClosed}
	}
	return nil
}

// end closes a closed file behind its last read; that error nobody waits for.
func (d *directFile) end() {
	if d.use.end() {
		_ = d.closeFiles()
	}
}

// read asks the kernel for what is missing of a request of which done bytes are
// there. The error is the kernel's own, or io.EOF.
func (d *directFile) read(r request, done int) (int, error) {
	iov := d.vectors.Get().(*[MaxVector]unix.Iovec)
	defer d.vectors.Put(iov)
	defer clear(iov[:]) // a pool must not keep the buffers
	p := progress{done: int64(done), total: r.bytes(), off: r.off, size: d.size}
	for p.done < p.total {
		n, err := d.calls.preadv(d.fd, r.iovecs(p.done, iov[:0]), r.off+p.done)
		if more, err := p.next(n, err); !more {
			return int(p.done), err
		}
	}
	return int(p.done), nil
}

// settle makes a read's last answer the caller's, and falls back if direct reads
// turn out not to work.
func (d *directFile) settle(r request, n int, err error) (int, error) {
	switch {
	case err == nil || err == io.EOF:
		return n, err
	case refused(err):
		return d.fallBack(r, err)
	}
	return n, &fs.PathError{Op: "read", Path: d.f.Name(), Err: err}
}

// fallBack reads through the page cache what was refused, and stays with it if
// that works. It does not where the caller's buffer is no memory, for instance.
func (d *directFile) fallBack(r request, cause error) (int, error) {
	n, err := d.readPlain(r)
	if err == nil || err == io.EOF {
		reason := fmt.Sprintf("a direct read of %d bytes at %d of %s was refused after open (%v): it is read through the page cache from then on",
			r.bytes(), r.off, d.f.Name(), cause)
		d.fallen.CompareAndSwap(nil, &reason)
	}
	return n, err
}

func (d *directFile) readPlain(r request) (int, error) {
	n, err := r.readFrom(d.plain)
	dropPages(d.plain, r.off, int64(n))
	return n, err
}

func (d *directFile) Size() int64       { return d.size }
func (d *directFile) Direct() Alignment { return d.align }

// Engine is that of the next read.
func (d *directFile) Engine() string {
	if d.fallen.Load() != nil {
		return EngineBuffered
	}
	return EnginePread
}

func (d *directFile) FallbackReason() string {
	if reason := d.fallen.Load(); reason != nil {
		return *reason
	}
	return ""
}

// Close does not wait for reads in flight: they end as if it came after them.
func (d *directFile) Close() error {
	first, now := d.use.close()
	switch {
	case !first:
		return &fs.PathError{Op: "close", Path: d.f.Name(), Err: fs.ErrClosed}
	case now:
		return d.closeFiles()
	}
	return nil
}

func (d *directFile) closeFiles() error { return errors.Join(d.f.Close(), d.plain.Close()) }

// keeps reports whether all buffers keep a direct file's alignment.
func (r request) keeps(a Alignment) bool {
	if r.many == nil {
		return a.check(r.one, r.off)
	}
	for _, p := range r.many {
		if !a.check(p, r.off) {
			return false
		}
	}
	return true
}

// iovecs writes the buffers behind the first done bytes into dst, up to maxRead.
func (r request) iovecs(done int64, dst []unix.Iovec) []unix.Iovec {
	if r.many == nil {
		return appendIovec(dst, r.one[done:min(int64(len(r.one)), done+maxRead)])
	}
	room := int64(maxRead)
	for _, p := range r.many {
		if skip := min(done, int64(len(p))); skip > 0 {
			p, done = p[skip:], done-skip
		}
		p = p[:min(int64(len(p)), room)]
		room -= int64(len(p))
		dst = appendIovec(dst, p)
	}
	return dst
}

func appendIovec(dst []unix.Iovec, p []byte) []unix.Iovec {
	if len(p) == 0 {
		return dst
	}
	v := unix.Iovec{Base: unsafe.SliceData(p)}
	v.SetLen(len(p))
	return append(dst, v)
}

// preadv is the system call; x/sys/unix's own wrapper allocates for long vectors.
func preadv(fd int, iov []unix.Iovec, off int64) (int, error) {
	for {
		// Two words of offset, of which 64-bit kernels take the first.
		n, _, errno := unix.Syscall6(unix.SYS_PREADV, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(iov))),
			uintptr(len(iov)), uintptr(off), uintptr(uint64(off)>>32), 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return 0, errno
		}
		return int(n), nil
	}
}
