package faultfs

import "outrider/layout"

type readFile struct {
	layout.File
	fs   *FS
	name string
}

func (r *readFile) ReadAt(p []byte, off int64) (int, error) {
	rule, err := r.fs.before(ReadAt, r.name)
	if err != nil {
		return 0, err
	}
	return rule.read(r.File.ReadAt, p, off)
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
	return rule.read(w.WriteFile.ReadAt, p, off)
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

type readAt func(p []byte, off int64) (int, error)

func (r *Rule) read(inner readAt, p []byte, off int64) (int, error) {
	switch {
	case r == nil:
		return inner(p, off)
	case r.Kind == Silent:
		return len(p), nil
	case r.Kind == Short:
		// The whole range is read, so that a direct read keeps its alignment.
		whole := append([]byte(nil), p...)
		n, err := inner(p, off)
		if n <= r.Bytes {
			return n, err
		}
		copy(p[r.Bytes:], whole[r.Bytes:])
		return r.Bytes, r.Err
	}
	n, err := inner(p, off)
	r.flip(p[:n])
	return n, err
}

func (r *Rule) write(inner readAt, p []byte, off int64) (int, error) {
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
	r.flip(changed)
	return inner(changed, off)
}

func (r *Rule) flip(p []byte) {
	if r.Kind != Flip || len(p) == 0 {
		return
	}
	bit := r.Bit % (8 * int64(len(p)))
	p[bit/8] ^= 1 << (bit % 8)
}
