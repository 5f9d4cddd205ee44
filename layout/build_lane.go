package layout

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"unsafe"
)

// ResumeFS is a WriteFS on which an unfinished build can be resumed. OS is one.
type ResumeFS interface {
	WriteFS
	// OpenWrite opens an existing file for more writing; what it holds stays.
	OpenWrite(name string) (WriteFile, error)
}

// directWriter is what a WriteFS offers whose files can be written around the page
// cache.
type directWriter interface {
	// writeDirect gives a file that is open for writing its size and opens it a second
	// time, for aligned writes around the page cache. No file and no error means that
	// this does not work here. The error is one of space.
	writeDirect(f WriteFile, name string, size int64) (WriteFile, error)
}

// directWriteAlign is the alignment of addresses, offsets and lengths of direct
// writes. It is a page, so that no page is written in both ways.
const directWriteAlign = 4096

// buildLane is where a lane, or the copies beside one, is built and where it goes.
type buildLane struct {
	entry  string // its path in the manifest
	target string // empty: it moves with the folder
	temp   string
	size   int64
	placed bool // a build that was killed while it renamed has put it at its target

	plain  WriteFile // nil: not open
	direct WriteFile // nil: all is written through the page cache
	fallen atomic.Bool
	dirty  atomic.Int64 // bytes written through the page cache since writing them out began
}

// writebackStep is after how many bytes through the page cache the device is given work.
// Left to itself the kernel begins late, and then slows down all writers of a file
// more than tenfold (Linux 6.18, ext4).
const writebackStep = 8 << 20

// path is where the lane lies while it is built.
func (l *buildLane) path() string {
	if l.placed {
		return l.target
	}
	return l.temp
}

// open makes the lane's file, or opens what an unfinished build has of it.
func (l *buildLane) open(b *builder, left bool) error {
	var err error
	switch {
	case l.placed:
		return nil
	case left && l.reopens(b.fs):
		l.plain, err = b.fs.(ResumeFS).OpenWrite(l.temp)
	default:
		l.plain, err = b.fs.Create(l.temp)
		if err == nil && l.target != "" {
			b.made = append(b.made, l.temp)
		}
	}
	if err != nil {
		return err
	}
	if fsys, ok := b.fs.(directWriter); ok && b.aligned && l.size > 0 {
		l.direct, err = fsys.writeDirect(l.plain, l.temp, l.size)
	}
	return err
}

// reopens reports whether what is left of the lane can be gone on with. A file that
// is longer than the lane is no part of it and is removed.
func (l *buildLane) reopens(fsys WriteFS) bool {
	info, err := fsys.Stat(l.temp)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	if info.Size() > l.size {
		_ = fsys.RemoveAll(l.temp) // Create says what is wrong with it
		return false
	}
	return true
}

// write writes all of p, around the page cache where alignment allows.
func (l *buildLane) write(p []byte, off int64) error {
	n, err := 0, error(nil)
	switch {
	case l.placed:
		return nil // it was whole before it got its name, and is read back
	case l.direct != nil && !l.fallen.Load() && pageAligned(p, off):
		if n, err = l.direct.WriteAt(p, off); err != nil && directRefused(err) {
			l.fallen.Store(true)
			n, err = l.plain.WriteAt(p, off)
		}
	default:
		n, err = l.plain.WriteAt(p, off)
		if dirty := l.dirty.Add(int64(n)); dirty >= writebackStep && l.dirty.CompareAndSwap(dirty, 0) {
			startWriteback(l.plain)
		}
	}
	if err == nil && n != len(p) {
		err = errors.New("short write")
	}
	if err != nil {
		return fmt.Errorf("write %d bytes at %d of %s: %w", len(p), off, l.path(), err)
	}
	return nil
}

func pageAligned(p []byte, off int64) bool {
	address := int64(uintptr(unsafe.Pointer(unsafe.SliceData(p))) & (directWriteAlign - 1))
	return (address|off|int64(len(p)))&(directWriteAlign-1) == 0
}

func (l *buildLane) sync() error {
	if l.plain == nil {
		return nil
	}
	if err := l.plain.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", l.path(), err)
	}
	return nil
}

// close closes what is open; a second call finds nothing to do.
func (l *buildLane) close() error {
	var errs []error
	for _, f := range []WriteFile{l.direct, l.plain} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	l.direct, l.plain = nil, nil
	return errors.Join(errs...)
}

// beside is the file for the copies that lie beside a lane; without a size there
// is none.
func (l *buildLane) beside(size int64) *buildLane {
	switch {
	case size == 0:
		return new(buildLane)
	case l.target == "":
		return &buildLane{temp: l.temp + copySuffix, size: size}
	}
	return &buildLane{target: l.target + copySuffix, temp: l.target + copySuffix + tempSuffix, size: size}
}

// laneFile says where a lane is built for a store whose folder is absolute.
func (b *builder) laneFile(path, absolute string) (*buildLane, error) {
	switch {
	case !filepath.IsAbs(path):
		return &buildLane{entry: path, temp: filepath.Join(b.temp, path)}, nil
	case filepath.Dir(path) == absolute:
		name := filepath.Base(path)
		if err := checkNewLanePath(name); err != nil {
			return nil, fmt.Errorf("layout: build: %w: lane %w", ErrPlan, err)
		}
		return &buildLane{entry: name, temp: filepath.Join(b.temp, name)}, nil
	}
	return &buildLane{entry: path, target: path, temp: path + tempSuffix}, nil
}

// files lists all files that are built as lanes are: the lanes, then the copies.
func (b *builder) files() []*buildLane {
	out := append([]*buildLane(nil), b.lanes...)
	for _, c := range b.copies {
		if c.temp != "" {
			out = append(out, c)
		}
	}
	return out
}

// closeLanes closes what is open; a second call finds nothing to do.
func (b *builder) closeLanes() error {
	var errs []error
	for _, lane := range b.files() {
		errs = append(errs, lane.close())
	}
	return errors.Join(errs...)
}

// isThere reports whether a regular file has this name.
func isThere(fsys FS, name string) bool {
	info, err := fsys.Stat(name)
	return err == nil && info.Mode().IsRegular()
}
