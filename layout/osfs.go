package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// OS is the operating system's file system. It has no state, and is safe for
// concurrent use.
//
// Opened with mode Direct, a file is read around the page cache only if that
// is proven to work: its alignment is asked from the kernel, and one read is
// compared with the same range read through the cache. Where direct reads are
// refused or wrong, the file is opened buffered, reads nothing ahead and drops the
// pages behind its reads (on Linux), and FallbackReason says why. Where a later direct read is
// refused (EINVAL, EFAULT, EOPNOTSUPP), that read and all later ones of the file
// go the same way; IsDirect tells.
func OS() WriteFS { return osFS{openDirect} }

type osFS struct {
	// direct opens a file for direct reads. No file and no error means that they
	// do not work here, for the reason given.
	direct func(name string) (File, string, error)
}

var _ WriteFS = osFS{}

// FallbackReason says why a file that was opened with mode Direct is read
// through the page cache after all, be it from the start or from a later read on.
// It is empty for a direct file, and for one that was opened buffered.
func FallbackReason(f File) string {
	if r, ok := f.(interface{ FallbackReason() string }); ok {
		return r.FallbackReason()
	}
	return ""
}

// Open refuses everything but regular files: opening a pipe would wait for
// whoever writes into it.
func (o osFS) Open(name string, mode Mode) (File, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("not a regular file (%v)", info.Mode().Type())}
	}
	if mode == Buffered {
		return openBuffered(name, "")
	}
	f, reason, err := o.direct(name)
	if err != nil || f != nil {
		return f, err
	}
	return openBuffered(name, reason)
}

func (osFS) Stat(name string) (fs.FileInfo, error)      { return os.Stat(name) }
func (osFS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }
func (osFS) Mkdir(name string) error                    { return os.Mkdir(name, 0o777) }
func (osFS) RemoveAll(name string) error                { return os.RemoveAll(name) }
func (osFS) Rename(oldName, newName string) error       { return renameNoReplace(oldName, newName) }
func (osFS) SyncDir(name string) error                  { return syncDir(name) }
func (osFS) Free(dir string) (int64, error)             { return freeBytes(dir) }

func (osFS) Create(name string) (WriteFile, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// bufferedFile reads through the page cache. With a reason it stands in for a
// direct file, and drops the pages behind its reads.
type bufferedFile struct {
	f      *os.File
	size   int64
	reason string
}

var _ VectorFile = (*bufferedFile)(nil)

func openBuffered(name, reason string) (File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if reason != "" {
		readNoFurther(f)
	}
	return &bufferedFile{f: f, size: info.Size(), reason: reason}, nil
}

func (b *bufferedFile) ReadAt(p []byte, off int64) (int, error) {
	return b.serve(request{one: p, off: off})
}

func (b *bufferedFile) ReadVAt(bufs [][]byte, off int64) (int, error) {
	return b.serve(request{many: bufs, off: off})
}

func (b *bufferedFile) serve(r request) (int, error) {
	if err := r.check(b.f.Name()); err != nil {
		return 0, err
	}
	n, err := r.readFrom(b.f)
	if b.reason != "" {
		dropPages(b.f, r.off, int64(n))
	}
	return n, err
}

func (b *bufferedFile) Size() int64            { return b.size }
func (b *bufferedFile) Direct() Alignment      { return Alignment{} }
func (b *bufferedFile) Close() error           { return b.f.Close() }
func (b *bufferedFile) FallbackReason() string { return b.reason }
func (b *bufferedFile) Engine() string         { return EngineBuffered }
