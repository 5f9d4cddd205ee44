package memfs

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"unsafe"

	"outrider/layout"
)

// readFile is a file open for reading.
type readFile struct {
	fs     *FS
	node   *node
	name   string
	align  layout.Alignment
	reason string
	closed atomic.Bool
}

var _ layout.VectorFile = (*readFile)(nil)

func (r *readFile) ReadAt(p []byte, off int64) (int, error) {
	if err := r.check(p, off); err != nil {
		return 0, err
	}
	return r.fs.read(r.node, r.name, p, off)
}

// ReadVAt sees all buffers' bytes as of one moment.
func (r *readFile) ReadVAt(bufs [][]byte, off int64) (int, error) {
	if len(bufs) > layout.MaxVector {
		return 0, fmt.Errorf("memfs: read at %d of %s into %d buffers, want at most %d", off, r.name, len(bufs), layout.MaxVector)
	}
	if err := r.check(nil, off); err != nil {
		return 0, err
	}
	for _, p := range bufs {
		if err := r.check(p, off); err != nil {
			return 0, err
		}
	}
	return r.fs.readV(r.node, r.name, bufs, off)
}

func (r *readFile) check(p []byte, off int64) error {
	if r.closed.Load() {
		return pathError("read", r.name, fs.ErrClosed)
	}
	if off >= 0 && !aligned(r.align, p, off) {
		return fmt.Errorf("memfs: read of %d bytes at %d of %s: %w", len(p), off, r.name, layout.ErrUnaligned)
	}
	return nil
}

func (r *readFile) Size() int64 {
	r.fs.mu.Lock()
	defer r.fs.mu.Unlock()
	return int64(len(r.node.data))
}

func (r *readFile) Direct() layout.Alignment { return r.align }
func (r *readFile) FallbackReason() string   { return r.reason }

func (r *readFile) Close() error {
	if r.closed.Swap(true) {
		return pathError("close", r.name, fs.ErrClosed)
	}
	return nil
}

func aligned(a layout.Alignment, p []byte, off int64) bool {
	if a == (layout.Alignment{}) || len(p) == 0 {
		return true
	}
	address := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	return address%uintptr(a.Memory) == 0 && off%int64(a.Offset) == 0 && len(p)%a.Offset == 0
}

func (f *FS) read(n *node, name string, p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, pathError("read", name, syscall.EINVAL)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	got := copy(p, n.data[min(off, int64(len(n.data))):])
	if got < len(p) {
		return got, io.EOF
	}
	return got, nil
}

func (f *FS) readV(n *node, name string, bufs [][]byte, off int64) (int, error) {
	if off < 0 {
		return 0, pathError("read", name, syscall.EINVAL)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	got, rest := 0, n.data[min(off, int64(len(n.data))):]
	for _, p := range bufs {
		if got += copy(p, rest); len(p) > len(rest) {
			return got, io.EOF
		}
		rest = rest[len(p):]
	}
	return got, nil
}

// writeFile is a file being written.
type writeFile struct {
	fs     *FS
	node   *node
	name   string
	closed atomic.Bool
}

var _ layout.WriteFile = (*writeFile)(nil)

// WriteAt fails with ENOSPC when the file would grow beyond Options.Limit.
func (w *writeFile) WriteAt(p []byte, off int64) (int, error) {
	if w.closed.Load() {
		return 0, pathError("write", w.name, fs.ErrClosed)
	}
	if off < 0 {
		return 0, pathError("write", w.name, syscall.EINVAL)
	}
	w.fs.mu.Lock()
	defer w.fs.mu.Unlock()
	if grow := off + int64(len(p)) - int64(len(w.node.data)); grow > 0 {
		if w.fs.opts.Limit > 0 && w.fs.used+grow > w.fs.opts.Limit {
			return 0, pathError("write", w.name, syscall.ENOSPC)
		}
		w.fs.used += grow
		w.node.data = append(w.node.data, make([]byte, grow)...)
	}
	return copy(w.node.data[off:], p), nil
}

func (w *writeFile) ReadAt(p []byte, off int64) (int, error) {
	if w.closed.Load() {
		return 0, pathError("read", w.name, fs.ErrClosed)
	}
	return w.fs.read(w.node, w.name, p, off)
}

func (w *writeFile) Sync() error {
	if w.closed.Load() {
		return pathError("sync", w.name, fs.ErrClosed)
	}
	return nil
}

func (w *writeFile) Close() error {
	if w.closed.Swap(true) {
		return pathError("close", w.name, fs.ErrClosed)
	}
	return nil
}

// MkdirAll makes a folder and those above it; it is no error if they exist.
func (f *FS) MkdirAll(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mkdirAllLocked(filepath.Clean(name))
}

func (f *FS) mkdirAllLocked(name string) error {
	if n := f.findLocked(name); n != nil {
		if !n.dir {
			return pathError("mkdir", name, syscall.ENOTDIR)
		}
		return nil
	}
	if err := f.mkdirAllLocked(filepath.Dir(name)); err != nil {
		return err
	}
	return f.addLocked("mkdir", name, &node{dir: true})
}

// WriteFile puts a file there, with its folders, in place of what was there.
// It takes a copy of data, and does not mind the limit.
func (f *FS) WriteFile(name string, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	name = filepath.Clean(name)
	if err := f.mkdirAllLocked(filepath.Dir(name)); err != nil {
		return err
	}
	if old := f.nodes[name]; old != nil {
		if old.dir {
			return pathError("write", name, syscall.EISDIR)
		}
		f.used -= int64(len(old.data))
	}
	f.used += int64(len(data))
	f.nodes[name] = &node{data: append([]byte(nil), data...)}
	return nil
}

// ReadFile returns a copy of a file.
func (f *FS) ReadFile(name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.findLocked(filepath.Clean(name))
	if n == nil || n.dir {
		return nil, pathError("read", name, fs.ErrNotExist)
	}
	return append([]byte(nil), n.data...), nil
}

// Names lists all files and folders, in order.
func (f *FS) Names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append(f.belowLocked(string(filepath.Separator)), f.belowLocked(".")...)
}
