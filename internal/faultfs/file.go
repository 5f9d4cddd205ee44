package faultfs

import (
	"bytes"

	"outrider/layout"
)

type readFile struct {
	layout.File
	fs   *FS
	name string
}

var _ layout.VectorFile = (*readFile)(nil)

func (r *readFile) ReadAt(p []byte, off int64) (int, error) {
	rule, err := r.fs.before(ReadAt, r.name)
	if err != nil {
		return 0, err
	}
	return rule.read(func() (int, error) { return r.File.ReadAt(p, off) }, p)
}

// ReadVAt is one call for the rules of ReadAt, of the bytes of all buffers.
func (r *readFile) ReadVAt(bufs [][]byte, off int64) (int, error) {
	rule, err := r.fs.before(ReadAt, r.name)
	if err != nil {
		return 0, err
	}
	return rule.read(func() (int, error) { return layout.ReadV(r.File, bufs, off) }, bufs...)
}

func (r *readFile) Close() error { return r.fs.closing(r.name, r.File.Close) }

// FallbackReason is the wrapped file's.
func (r *readFile) FallbackReason() string { return layout.FallbackReason(r.File) }

// Engine is the wrapped file's.
func (r *readFile) Engine() string { return layout.Engine(r.File) }

type writeFile struct {
	layout.WriteFile
	fs   *FS
	name string
}

func (w *writeFile) ReadAt(p []byte, off int64) (int, error) {
	rule, err := w.fs.before(ReadAt, w.name)
	if err != nil {
		return 0, err
	}
	return rule.read(func() (int, error) { return w.WriteFile.ReadAt(p, off) }, p)
}

func (w *writeFile) WriteAt(p []byte, off int64) (int, error) {
	rule, err := w.fs.before(WriteAt, w.name)
	if err != nil {
		return 0, err
	}
	return rule.write(w.WriteFile.WriteAt, p, off)
}

func (w *writeFile) Sync() error {
	if _, err := w.fs.before(Sync, w.name); err != nil {
		return err
	}
	return w.WriteFile.Sync()
}

func (w *writeFile) Close() error { return w.fs.closing(w.name, w.WriteFile.Close) }

// closing closes the file even when the call is made to fail, so that a test
// does not leak it.
func (f *FS) closing(name string, closeFile func() error) error {
	_, err := f.before(Close, name)
	if err2 := closeFile(); err == nil {
		err = err2
	}
	return err
}

// read carries out a call that reads into bufs one after another.
func (r *Rule) read(call func() (int, error), bufs ...[]byte) (int, error) {
	switch {
	case r == nil:
		return call()
	case r.Kind == Silent:
		total := 0
		for _, p := range bufs {
			total += len(p)
		}
		return total, nil
	case r.Kind == Short:
		return r.readShort(call, bufs)
	}
	n, err := call()
	r.flip(int64(n), bufs...)
	return n, err
}

// readShort reads the whole range, so that a direct read keeps its alignment,
// and puts back what lies behind the cut.
func (r *Rule) readShort(call func() (int, error), bufs [][]byte) (int, error) {
	var before [][]byte
	for _, p := range bufs {
		before = append(before, bytes.Clone(p))
	}
	n, err := call()
	if n <= r.Bytes {
		return n, err
	}
	at := 0
	for i, p := range bufs {
		keep := min(max(r.Bytes-at, 0), len(p))
		copy(p[keep:], before[i][keep:])
		at += len(p)
	}
	return r.Bytes, r.Err
}

func (r *Rule) write(inner func(p []byte, off int64) (int, error), p []byte, off int64) (int, error) {
	switch {
	case r == nil:
		return inner(p, off)
	case r.Kind == Silent:
		return len(p), nil
	case r.Kind == Short:
		n, err := inner(p[:min(r.Bytes, len(p))], off)
		if err == nil {
			err = r.Err
		}
		return n, err
	}
	changed := append([]byte(nil), p...)
	r.flip(int64(len(changed)), changed)
	return inner(changed, off)
}

// flip inverts the rule's bit, counted over the first n bytes of bufs.
func (r *Rule) flip(n int64, bufs ...[]byte) {
	if r.Kind != Flip || n == 0 {
		return
	}
	bit := r.Bit % (8 * n)
	for _, p := range bufs {
		if bits := 8 * int64(len(p)); bit >= bits {
			bit -= bits
			continue
		}
		p[bit/8] ^= 1 << (bit % 8)
		return
	}
}
