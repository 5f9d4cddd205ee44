package layout

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// ringFile is a direct file that is read through a ring.
type ringFile struct {
	direct *directFile
	engine *ringEngine
	left   atomic.Bool // the ring was refused what pread brings: it is not asked again
}

var _ VectorFile = (*ringFile)(nil)

// prove reads a file that lies in memory through the ring: the kernel may offer
// one and yet not let it read, as some sandboxes do.
func (e *ringEngine) prove() error {
	fd, err := unix.MemfdCreate("outrider-proof", unix.MFD_CLOEXEC)
	if err != nil {
		return nil // nothing is known against the ring; each file is proven anyway
	}
	f := os.NewFile(uintptr(fd), "outrider-proof")
	defer f.Close()
	want := make([]byte, 8<<10)
	setMarks(want, markA)
	if _, err := f.WriteAt(want, 0); err != nil {
		return nil
	}
	got := make([]byte, len(want))
	for _, r := range []request{{one: got[:4096]}, {many: [][]byte{got[4096:6000], got[6000:]}, off: 4096}} {
		n, err := e.read(fd, r, 0)
		if err != nil || int64(n) != r.bytes() {
			return fmt.Errorf("got %d of %d bytes and %v", n, r.bytes(), err)
		}
	}
	if !bytes.Equal(got, want) {
		return errors.New("got other bytes than the file's")
	}
	return nil
}

// adopt proves that the ring reads a direct file rightly. Where it does not,
// the file stays as it is.
func (e *ringEngine) adopt(f File, name string) (File, error) {
	if e.isClosing() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errRingClosed}
	}
	direct, ok := f.(*directFile)
	if !ok || e.isBroken() {
		return f, nil
	}
	ringed := &ringFile{direct: direct, engine: e}
	reason, err := probe(ringOnly{ringed}, direct.plain, direct.align, direct.size)
	dropPages(direct.plain, 0, 2*int64(direct.align.Offset))
	switch {
	case errors.Is(err, fs.ErrClosed):
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	case err != nil:
		reason = fmt.Sprintf("a read through the ring failed (%v)", err)
	case reason == "":
		return ringed, nil
	}
	e.bypassed(name + ": " + reason)
	return direct, nil
}

// ringOnly is a ringFile without its way out: a proof by pread proves nothing.
type ringOnly struct{ f *ringFile }

func (o ringOnly) ReadAt(p []byte, off int64) (int, error) {
	return o.f.readRing(request{one: p, off: off})
}

func (f *ringFile) ReadAt(p []byte, off int64) (int, error) {
	return f.serve(request{one: p, off: off})
}

func (f *ringFile) ReadVAt(bufs [][]byte, off int64) (int, error) {
	return f.serve(request{many: bufs, off: off})
}

// serve reads by pread what the ring does not take, and through the page cache
// what pread is refused as well.
func (f *ringFile) serve(r request) (int, error) {
	d := f.direct
	if err := d.begin(r); err != nil {
		return 0, err
	}
	defer d.end()
	switch {
	case d.fallen.Load() != nil:
		return d.readPlain(r)
	case f.engine.isClosing():
		return d.settle(r, 0, errRingClosed)
	case f.left.Load() || r.bytes() < f.engine.least || f.engine.crowded():
		return f.readBeside(r)
	}
	n, err := f.readRing(r)
	if cause := err; refused(cause) {
		if n, err = d.read(r, n); !refused(err) {
			f.left.Store(true)
			f.engine.bypassed(fmt.Sprintf("%s: a read of %d bytes at %d through the ring was refused (%v), but not by pread",
				d.f.Name(), r.bytes(), r.off, cause))
		}
	} else if errors.Is(err, errNotTaken) || interrupted(err) {
		n, err = d.read(r, n)
	}
	return d.settle(r, n, err)
}

// readBeside reads by pread, which holds its P until the read is done. On the way
// it wakes those who parked before there was a crowd.
func (f *ringFile) readBeside(r request) (int, error) {
	f.engine.drain()
	n, err := f.direct.read(r, 0)
	f.engine.drain()
	return f.direct.settle(r, n, err)
}

// readRing reads until the buffers are full, the file ends, or something is wrong.
func (f *ringFile) readRing(r request) (int, error) {
	p := progress{total: r.bytes(), off: r.off, size: f.direct.size}
	for p.done < p.total {
		n, err := f.engine.read(f.direct.fd, r, p.done)
		if more, err := p.next(n, err); !more {
			return int(p.done), err
		}
	}
	return int(p.done), nil
}

func (f *ringFile) Size() int64            { return f.direct.size }
func (f *ringFile) Direct() Alignment      { return f.direct.align }
func (f *ringFile) Close() error           { return f.direct.Close() }
func (f *ringFile) FallbackReason() string { return f.direct.FallbackReason() }

// Engine is that of the next read.
func (f *ringFile) Engine() string {
	if engine := f.direct.Engine(); engine != EnginePread || f.left.Load() || f.engine.isBroken() {
		return engine
	}
	return EngineRing
}
