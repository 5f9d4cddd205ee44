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

// ringFile is a direct file that readers read through rings. Its own ReadAt and
// ReadVAt are the direct file's.
type ringFile struct {
	*directFile
	engine *ringEngine
	left   atomic.Bool // a ring was refused what pread brings: none is asked again
}

var (
	_ VectorFile = (*ringFile)(nil)
	_ MultiFile  = (*ringFile)(nil)
)

// LeastCarried is RingOptions.Least.
func (f *ringFile) LeastCarried() int64 { return f.engine.least }

// NewReader serves files of one Ring.
func (f *ringFile) NewReader(others ...File) Reader {
	r := &ringReader{engine: f.engine, files: []*ringFile{f}}
	for _, other := range others {
		o, ok := other.(*ringFile)
		if !ok || o.engine != f.engine {
			return nil
		}
		r.files = append(r.files, o)
	}
	return r
}

// Engine is that of a Reader's next read.
func (f *ringFile) Engine() string {
	if engine := f.directFile.Engine(); engine != EnginePread || !f.ringed() {
		return engine
	}
	return EngineRing
}

// ringed reports whether reads of the file are given to rings.
func (f *ringFile) ringed() bool {
	return f.fallen.Load() == nil && !f.left.Load() && !f.engine.isBroken()
}

// prove reads a file that lies in memory through a ring: the kernel may offer
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
	d := newDirectFile(f, f, int64(len(want)), Alignment{Memory: 1, Offset: 1}, kernelCalls())
	only := ringOnly{&ringFile{directFile: d, engine: e}}
	got := make([]byte, len(want))
	for _, r := range []request{{many: [][]byte{got[:4096]}}, {many: [][]byte{got[4096:6000], got[6000:]}, off: 4096}} {
		n, err := only.read(r)
		if err != nil || int64(n) != r.bytes() {
			return fmt.Errorf("got %d of %d bytes and %v", n, r.bytes(), err)
		}
	}
	if !bytes.Equal(got, want) {
		return errors.New("got other bytes than the file's")
	}
	return nil
}

// adopt proves that a ring reads a direct file rightly. Where it does not,
// the file stays as it is.
func (e *ringEngine) adopt(f File, name string) (File, error) {
	if e.closed.Load() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errRingClosed}
	}
	direct, ok := f.(*directFile)
	if !ok || e.isBroken() {
		return f, nil
	}
	ringed := &ringFile{directFile: direct, engine: e}
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

// ringOnly is a ringFile without its ways out: a proof by pread proves nothing.
type ringOnly struct{ f *ringFile }

func (o ringOnly) ReadAt(p []byte, off int64) (int, error) {
	return o.read(request{many: [][]byte{p}, off: off})
}

func (o ringOnly) read(q request) (int, error) {
	r := &ringReader{engine: o.f.engine, files: []*ringFile{o.f}, strict: true}
	r.Start(o.f, 0, q.many, q.off)
	_, n, err := r.Wait()
	return n, errors.Join(err, r.Close())
}
